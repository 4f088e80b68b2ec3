"""When to send and when to aggregate. A pace sees the idle clients, the jobs in flight and the results that wait.

It also decides what happens to a late result: dropped, or kept for a later step with its staleness.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor
from typing import Any, ClassVar, Literal, overload

from fedsim.config import NonNegativeFloat, NoParams, PositiveFloat, PositiveFraction, PositiveInt, RunConfig
from fedsim.errors import ConfigError
from fedsim.rng import stream

PACES = {
    "synchronous": "fedsim.server.pace:Synchronous",
    "deadline": "fedsim.server.pace:Deadline",
    "wait-fraction": "fedsim.server.pace:WaitFraction",
    "periodic": "fedsim.server.pace:Periodic",
    "window": "fedsim.server.pace:Window",
    "buffered": "fedsim.server.pace:Buffered",
}


class Lazy(Sequence[int]):
    """A sequence that is made when it is first looked at: a list of all idle clients for every event would be slow."""

    def __init__(self, make: Callable[[], Sequence[int]]) -> None:
        self._make = make

    @cached_property
    def _items(self) -> Sequence[int]:
        return self._make()

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...

    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self._items[place]


@dataclass(frozen=True)
class Situation:
    """All that a pace may know."""

    step: int
    now: float
    began: float  # when this step began
    idle: Sequence[int]  # clients that can get a job
    in_flight: int  # training jobs in flight, of any step
    current: int  # training jobs in flight that started from this step
    cohort: int  # training jobs sent in this step so far
    buffered: int  # results that wait for the update
    first: float | None  # when the first of them arrived
    due: bool  # further results arrive at this very moment


class Pace(ABC):
    """Base of all paces, made from its parameters and the run's configuration."""

    params: ClassVar[type[Any]] = NoParams
    rounds: ClassVar[bool] = False  # whether every job of a step ends within it

    def __init__(self, params: Any, config: RunConfig) -> None:
        self._params, self._seed = params, config.seed
        self.cohort = config.cohort

    def admit(self, now: Situation) -> list[int]:
        """Which idle clients get a job now. By default a sample of `participation` of the clients, once per step."""
        return [] if now.cohort else self._sample(now, self.cohort)

    @abstractmethod
    def ready(self, now: Situation) -> bool:
        """Whether the server updates now."""

    def deadline(self, now: Situation) -> float | None:
        """When to stop waiting for the next result; None: wait for it."""
        return None

    def keeps(self, staleness: int) -> bool:
        """Whether a result that started from an earlier step still counts."""
        return True

    def _sample(self, now: Situation, wanted: int) -> list[int]:
        if wanted >= len(now.idle):
            return list(now.idle)
        rng = stream(self._seed, now.step, now.cohort, "cohort")
        return sorted(rng.choice(list(now.idle), wanted, replace=False).tolist())


class Synchronous(Pace):
    """rounds: wait for everyone who was asked"""

    rounds = True

    def ready(self, now: Situation) -> bool:
        return now.in_flight == 0 and now.buffered > 0


@dataclass(frozen=True)
class DeadlineParams:
    seconds: PositiveFloat = 1.0  # from the beginning of the round
    late: Literal["drop", "join"] = "drop"  # what happens to results that miss the deadline


class Deadline(Pace):
    """rounds with a deadline; late results are dropped, or join a later round"""

    params = DeadlineParams

    def ready(self, now: Situation) -> bool:
        return now.buffered > 0 and not now.due and (now.current == 0 or now.now >= now.began + self._params.seconds)

    def deadline(self, now: Situation) -> float | None:
        return now.began + self._params.seconds if now.buffered else None

    def keeps(self, staleness: int) -> bool:
        return staleness == 0 or self._params.late == "join"


@dataclass(frozen=True)
class WaitFractionParams:
    fraction: PositiveFraction = 0.5  # share of a round's clients whose results are waited for
    late: Literal["drop", "join"] = "drop"  # what happens to results that come after enough others


class WaitFraction(Pace):
    """rounds that wait for a fraction of the cohort; late results are dropped, or join a later round"""

    params = WaitFractionParams

    def ready(self, now: Situation) -> bool:
        enough = now.buffered >= ceil(self._params.fraction * now.cohort)
        return now.buffered > 0 and not now.due and (enough or now.current == 0)

    def keeps(self, staleness: int) -> bool:
        return staleness == 0 or self._params.late == "join"


@dataclass(frozen=True)
class PeriodicParams:
    seconds: PositiveFloat = 1.0  # from one aggregation to the next


class Periodic(Pace):
    """aggregate at fixed times; late results join a later step with their staleness"""

    params = PeriodicParams

    def ready(self, now: Situation) -> bool:
        return not now.due and now.first is not None and now.now >= self._tick(now)

    def deadline(self, now: Situation) -> float | None:
        return None if now.first is None else self._tick(now)

    def _tick(self, now: Situation) -> float:
        """The first of the fixed times after this step began at which a result is there."""
        assert now.first is not None
        period = self._params.seconds
        return float(max(floor(now.began / period) + 1, ceil(now.first / period)) * period)


@dataclass(frozen=True)
class WindowParams:
    seconds: NonNegativeFloat = 0.0  # how long to collect after the first arrival; 0: what arrives at the same moment


class Window(Pace):
    """aggregate what arrives within a window after the first arrival (PLGA); late results join a later step"""

    params = WindowParams

    def ready(self, now: Situation) -> bool:
        if now.first is None or now.due:
            return False
        return now.in_flight == 0 or now.now >= now.first + self._params.seconds

    def deadline(self, now: Situation) -> float | None:
        return None if now.first is None else now.first + self._params.seconds


@dataclass(frozen=True)
class BufferedParams:
    k: PositiveInt = 1  # results per step; 1: every arrival is a step


class Buffered(Pace):
    """step after every k results, and keep everyone busy (FedBuff; k=1: FedAsync); results carry their staleness"""

    params = BufferedParams

    def __init__(self, params: BufferedParams, config: RunConfig) -> None:
        super().__init__(params, config)
        if params.k > self.cohort:
            raise ConfigError(
                f"pace.k={params.k} results can never be there: only {self.cohort} clients work at a time"
            )

    def admit(self, now: Situation) -> list[int]:
        return [] if now.due else self._sample(now, max(0, self.cohort - now.in_flight))

    def ready(self, now: Situation) -> bool:
        return bool(now.buffered >= self._params.k)
