"""Straggler models: how long each job takes and who drops out, drawn at dispatch from (seed, client, step).

On the virtual clock an undelayed job takes `round` seconds and a delay is added to it. On the wall clock training takes what
it takes, and the delay is slept by the client.
"""

import csv
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any, ClassVar

from fedsim import traces
from fedsim.config import RunConfig, at_least, positive
from fedsim.errors import ConfigError
from fedsim.payload import Fate
from fedsim.rng import stream

STRAGGLERS = {
    "none": "fedsim.stragglers:NoStragglers",
    "periodic": "fedsim.stragglers:Periodic",
    "uniform-rounds": "fedsim.stragglers:UniformRounds",
    "speed": "fedsim.stragglers:Speed",
    "trace": "fedsim.stragglers:Trace",
}


@dataclass(frozen=True)
class Work:
    """What a delay may depend on."""

    client: int
    step: int
    turn: int  # how many jobs the client got before at this step
    now: float
    samples: int  # processed in training
    bytes: int  # down and up


@dataclass(frozen=True)
class Dropouts:
    """Parameters of every model: with probability `dropout` a client vanishes with its job."""

    dropout: float = 0.0
    absence: float = 10.0  # seconds it stays away; inf: for good
    notice: float = 1.0  # seconds until the server notices

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"stragglers.dropout must be at least 0 and below 1, not {self.dropout}")
        at_least("stragglers.absence", self.absence, 0)
        at_least("stragglers.notice", self.notice, 0)


class Stragglers(ABC):
    """A model is made from its parameters and the run's configuration."""

    params: ClassVar[type[Any]] = Dropouts
    round: float = 1.0  # virtual seconds of an undelayed job

    def __init__(self, params: Any, config: RunConfig) -> None:
        self._params, self._seed = params, config.seed

    @abstractmethod
    def delay(self, work: Work) -> float:
        """Seconds this job takes longer than an undelayed one; infinity: it never comes back."""

    def fate(self, work: Work) -> Fate:
        vanishing: Dropouts = self._params
        if (
            vanishing.dropout
            and stream(self._seed, work.client, work.step, work.turn, "dropout").random() < vanishing.dropout
        ):
            return Fate(vanishing.notice, vanishing.notice, vanishing.absence)
        delay = self.delay(work)
        return Fate(self.round + delay, delay)


class NoStragglers(Stragglers):
    """everyone is equally fast: a job takes one virtual second"""

    def delay(self, work: Work) -> float:
        return 0.0


@dataclass(frozen=True)
class PeriodicParams(Dropouts):
    count: int = 5  # |S|: clients 0 .. count-1 straggle, with periods 1 .. count
    schedule: str = "paper"  # paper: cycle p+1; official: cycle p+2, as in the authors' code
    unit: float = 1.0  # seconds of one round

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("stragglers.count", self.count, 0)
        positive("stragglers.unit", self.unit)
        if self.schedule not in ("paper", "official"):
            raise ConfigError(f"unknown stragglers.schedule {self.schedule!r}. Choices: official, paper")


class Periodic(Stragglers):
    """a fixed set of clients misses a fixed number of rounds each time (PLGA)

    Client i < count has period p = i+1. Paper: it starts from the model of round a, and its result joins round a+p, so every
    cycle takes p+1 rounds and every result is p rounds stale. Official code: in between it takes part in one round freshly.
    """

    params = PeriodicParams

    def __init__(self, params: PeriodicParams, config: RunConfig) -> None:
        super().__init__(params, config)
        if params.count > config.clients:
            raise ConfigError(f"stragglers.count={params.count}, but there are only clients={config.clients}")
        self.round = params.unit

    def delay(self, work: Work) -> float:
        period = work.client + 1
        if period > self._params.count:
            return 0.0
        fresh = self._params.schedule == "official" and work.step % (period + 2) == 0
        return 0.0 if fresh else period * self.round


@dataclass(frozen=True)
class UniformParams(Dropouts):
    most: int = 2  # delays are uniform in {0 .. most} rounds
    unit: float = 1.0  # seconds of one round

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("stragglers.most", self.most, 0)
        positive("stragglers.unit", self.unit)


class UniformRounds(Stragglers):
    """every job is late by 0, 1 or 2 rounds with equal probability (Sageflow)"""

    params = UniformParams

    def __init__(self, params: UniformParams, config: RunConfig) -> None:
        super().__init__(params, config)
        self.round = params.unit

    def delay(self, work: Work) -> float:
        rng = stream(self._seed, work.client, work.step, work.turn, "delay")
        return float(rng.integers(self._params.most + 1)) * self.round


@dataclass(frozen=True)
class SpeedParams(Dropouts):
    samples: float = 500.0  # training samples per second of the median client
    spread: float = 0.6  # standard deviation of the logarithm of a client's speed
    bandwidth: float = 1e6  # bytes per second of the median client
    bandwidth_spread: float = 0.6
    jitter: float = 0.1  # standard deviation of the logarithm from job to job

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("stragglers.samples", self.samples)
        positive("stragglers.bandwidth", self.bandwidth)
        for name in ("spread", "bandwidth_spread", "jitter"):
            at_least(f"stragglers.{name}", getattr(self, name), 0)


class Speed(Stragglers):
    """log-normal compute speed per client x work done + bytes / log-normal bandwidth"""

    params = SpeedParams
    round = 0.0

    def delay(self, work: Work) -> float:
        params: SpeedParams = self._params
        client = stream(self._seed, work.client, "speed")
        speed = params.samples * client.lognormal(0.0, params.spread)
        bandwidth = params.bandwidth * client.lognormal(0.0, params.bandwidth_spread)
        jitter = stream(self._seed, work.client, work.step, work.turn, "delay").lognormal(0.0, params.jitter)
        return float(jitter * (work.samples / speed + work.bytes / bandwidth))


@dataclass(frozen=True)
class TraceParams(Dropouts):
    file: str = traces.NAME  # a CSV of client,time,duration, or the name of the one that ships
    cycle: bool = False  # clients beyond the trace use it again from its first client on


class Trace(Stragglers):
    """durations from a CSV of client,time,duration; inf: the client is away until its next row

    A row says how long a job takes that is sent at `time` or later, up to the client's next row.
    """

    params = TraceParams
    round = 0.0

    def __init__(self, params: TraceParams, config: RunConfig) -> None:
        super().__init__(params, config)
        ships = params.file == traces.NAME
        self._rows = _rows(traces.TEXT.splitlines() if ships else _lines(params.file), params.file)
        if params.cycle or ships:
            return
        if unknown := [c for c in self._rows if c >= config.clients]:
            raise ConfigError(
                f"{params.file} names client {unknown[0]}, but clients={config.clients} allows 0 to {config.clients - 1}"
            )
        if missing := [c for c in range(config.clients) if c not in self._rows]:
            raise ConfigError(
                f"{params.file} has no row for client {missing[0]}; stragglers.cycle=true would reuse the others"
            )

    def delay(self, work: Work) -> float:
        return self._row(work)[0]

    def fate(self, work: Work) -> Fate:
        duration, until = self._row(work)
        if duration == inf:
            return Fate(self._params.notice, self._params.notice, until - work.now)
        return super().fate(work)

    def _row(self, work: Work) -> tuple[float, float]:
        """The duration in force, and when the next row begins."""
        clients = sorted(self._rows)
        rows = self._rows[clients[work.client % len(clients)]]
        place = max(0, bisect_right(rows, (work.now, inf)) - 1)
        return rows[place][1], rows[place + 1][0] if place + 1 < len(rows) else inf


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the trace {file}: {error}. The one that ships is called {traces.NAME!r}"
        ) from error


def _rows(lines: Iterable[str], file: str) -> dict[int, list[tuple[float, float]]]:
    """client -> (time, duration) in order of time."""
    rows: dict[int, list[tuple[float, float]]] = {}
    for number, row in enumerate(csv.DictReader(lines), start=2):
        try:
            client, time, duration = int(row["client"]), float(row["time"]), float(row["duration"])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{file}, line {number}: expected client,time,duration with numbers, not {row}") from None
        if client < 0 or not 0 <= time < inf or isnan(duration) or duration < 0:
            raise ConfigError(f"{file}, line {number}: client, time and duration must not be negative: {row}")
        rows.setdefault(client, []).append((time, duration))
    if not rows:
        raise ConfigError(f"{file} holds no rows; it needs the columns client,time,duration")
    return {client: sorted(times) for client, times in rows.items()}
