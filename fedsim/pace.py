"""When to send and when to aggregate. A pace sees who is idle, how many jobs are out and how many results wait; no more."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from fedsim.config import NoParams, RunConfig
from fedsim.rng import stream

PACES = {"synchronous": "fedsim.pace:Synchronous"}


class Pace(Protocol):
    """The rhythm of a federation, made from its parameters and the run's configuration."""

    params: ClassVar[type[Any]]

    def __init__(self, params: Any, config: RunConfig) -> None: ...

    def admit(self, idle: Sequence[int], in_flight: int, buffered: int, step: int) -> list[int]:
        """Which of the idle clients get a job now."""

    def ready(self, in_flight: int, buffered: int, now: float) -> bool:
        """Whether the server steps now."""

    def deadline(self, now: float) -> float | None:
        """When to stop waiting for the next arrival; None: wait for it."""


class Synchronous:
    """Rounds: sample a share of the clients (`participation`), wait for all of them, step."""

    params: ClassVar[type[Any]] = NoParams

    def __init__(self, params: NoParams, config: RunConfig) -> None:
        self._seed = config.seed
        self._cohort = max(1, round(config.participation * config.clients))

    def admit(self, idle: Sequence[int], in_flight: int, buffered: int, step: int) -> list[int]:
        if in_flight or buffered:
            return []
        if self._cohort >= len(idle):
            return list(idle)
        return sorted(stream(self._seed, step, "cohort").choice(list(idle), self._cohort, replace=False).tolist())

    def ready(self, in_flight: int, buffered: int, now: float) -> bool:
        return in_flight == 0 and buffered > 0

    def deadline(self, now: float) -> float | None:
        return None
