"""Straggler models: how long a job takes and whether its client drops out, drawn from (seed, client, step) at sending.

On the virtual clock an undelayed job takes `round` seconds, and the delay is added to it. On the wall clock training
takes its real time, and the client sleeps the delay.
"""

import csv
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedsim.config import FractionBelowOne, NonNegativeFloat, NonNegativeInt, PositiveFloat, RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import SimulatedDelay
from fedsim.rng import stream
from fedsim.server import example_trace

STRAGGLERS = {
    "none": "fedsim.server.stragglers:NoStragglers",
    "periodic": "fedsim.server.stragglers:Periodic",
    "uniform-rounds": "fedsim.server.stragglers:UniformRounds",
    "speed": "fedsim.server.stragglers:Speed",
    "trace": "fedsim.server.stragglers:Trace",
}


@dataclass(frozen=True)
class JobProfile:
    """What the delay of a training job may depend on."""

    client: int
    step: int
    job_index: int  # how many training jobs the client got before in this step
    now: float
    samples: int  # processed in training
    bytes: int  # down and up


@dataclass(frozen=True)
class Dropouts:
    """Parameters of every model: with probability `dropout` a client drops out and its job is lost."""

    dropout: FractionBelowOne = 0.0  # chance that a client drops out of a job, whose result is lost
    absence: NonNegativeFloat = 10.0  # seconds until it is back; inf: never
    notice: NonNegativeFloat = 1.0  # seconds until the server notices


class Stragglers(ABC):
    """Base of all straggler models, made from its parameters and the run's configuration."""

    params: ClassVar[type[Any]] = Dropouts
    round: float = 1.0  # virtual seconds of an undelayed job

    def __init__(self, params: Any, config: RunConfig) -> None:
        self._params, self._seed = params, config.seed

    @abstractmethod
    def delay(self, job: JobProfile) -> float:
        """Seconds this job takes longer than an undelayed one; infinity: its result never arrives."""

    def simulated_delay(self, job: JobProfile) -> SimulatedDelay:
        """Duration and delay of a job, or the absence of its client."""
        params: Dropouts = self._params
        key = self._seed, job.client, job.step, job.job_index, "dropout"
        if params.dropout and stream(*key).random() < params.dropout:
            return SimulatedDelay(params.notice, params.notice, params.absence)
        delay = self.delay(job)
        return SimulatedDelay(self.round + delay, delay)


class NoStragglers(Stragglers):
    """all clients are equally fast: a job takes one virtual second"""

    def delay(self, job: JobProfile) -> float:
        return 0.0


@dataclass(frozen=True)
class PeriodicParams(Dropouts):
    count: NonNegativeInt = 5  # |S|: clients 0 .. count-1 straggle, with periods 1 .. count
    schedule: Literal["paper", "official"] = "paper"  # paper: cycle p+1; official: cycle p+2, as in the authors' code
    unit: PositiveFloat = 1.0  # seconds of one round


class Periodic(Stragglers):
    """a fixed set of clients misses a fixed number of rounds each time (PLGA)

    Client i < count has period p = i+1. Paper: it starts from the model of round a, and its result joins round a+p, so
    every cycle takes p+1 rounds and every result is p rounds stale. Official code: in between it takes part in one
    round without delay.
    """

    params = PeriodicParams

    def __init__(self, params: PeriodicParams, config: RunConfig) -> None:
        super().__init__(params, config)
        if params.count > config.clients:
            raise ConfigError(f"stragglers.count={params.count}, but there are only clients={config.clients}")
        self.round = params.unit

    def delay(self, job: JobProfile) -> float:
        period = job.client + 1
        if period > self._params.count:
            return 0.0
        fresh = self._params.schedule == "official" and job.step % (period + 2) == 0
        return 0.0 if fresh else period * self.round


@dataclass(frozen=True)
class UniformParams(Dropouts):
    most: NonNegativeInt = 2  # delays are uniform in {0 .. most} rounds
    unit: PositiveFloat = 1.0  # seconds of one round


class UniformRounds(Stragglers):
    """every job is late by 0, 1 or 2 rounds with equal probability (Sageflow)"""

    params = UniformParams

    def __init__(self, params: UniformParams, config: RunConfig) -> None:
        super().__init__(params, config)
        self.round = params.unit

    def delay(self, job: JobProfile) -> float:
        rng = stream(self._seed, job.client, job.step, job.job_index, "delay")
        return float(rng.integers(self._params.most + 1)) * self.round


@dataclass(frozen=True)
class SpeedParams(Dropouts):
    samples: PositiveFloat = 500.0  # training samples per second of the median client
    spread: NonNegativeFloat = 0.6  # standard deviation of the logarithm of a client's speed
    bandwidth: PositiveFloat = 1e6  # bytes per second of the median client
    bandwidth_spread: NonNegativeFloat = 0.6  # standard deviation of the logarithm of a client's bandwidth
    jitter: NonNegativeFloat = 0.1  # standard deviation of the logarithm from job to job


class Speed(Stragglers):
    """log-normal compute speed per client x work done + bytes / log-normal bandwidth"""

    params = SpeedParams
    round = 0.0

    def delay(self, job: JobProfile) -> float:
        params: SpeedParams = self._params
        client = stream(self._seed, job.client, "speed")
        speed = params.samples * client.lognormal(0.0, params.spread)
        bandwidth = params.bandwidth * client.lognormal(0.0, params.bandwidth_spread)
        jitter = stream(self._seed, job.client, job.step, job.job_index, "delay").lognormal(0.0, params.jitter)
        return float(jitter * (job.samples / speed + job.bytes / bandwidth))


@dataclass(frozen=True)
class TraceParams(Dropouts):
    file: str = example_trace.NAME  # a CSV of client,time,duration, or the name of the one that ships
    cycle: bool = False  # clients beyond the trace use it again from its first client on


class Trace(Stragglers):
    """durations from a CSV of client,time,duration; inf: the client is absent until its next row

    A row says how long a job takes that is sent at `time` or later, up to the client's next row.
    """

    params = TraceParams
    round = 0.0

    def __init__(self, params: TraceParams, config: RunConfig) -> None:
        super().__init__(params, config)
        ships = params.file == example_trace.NAME
        self._rows = _rows(example_trace.TEXT.splitlines() if ships else _lines(params.file), params.file)
        if params.cycle or ships:
            return
        file, clients = params.file, config.clients
        if unknown := [c for c in self._rows if c >= clients]:
            raise ConfigError(f"{file} names client {unknown[0]}, but clients={clients} allows 0 to {clients - 1}")
        if missing := [c for c in range(clients) if c not in self._rows]:
            raise ConfigError(f"{file} has no row for client {missing[0]}; stragglers.cycle=true reuses the others")

    def delay(self, job: JobProfile) -> float:
        return self._row(job)[0]

    def simulated_delay(self, job: JobProfile) -> SimulatedDelay:
        duration, until = self._row(job)
        if duration == inf:
            return SimulatedDelay(self._params.notice, self._params.notice, until - job.now)
        return super().simulated_delay(job)

    def _row(self, job: JobProfile) -> tuple[float, float]:
        """The duration of a job that is sent now, and when the next row begins."""
        clients = sorted(self._rows)
        rows = self._rows[clients[job.client % len(clients)]]
        place = max(0, bisect_right(rows, (job.now, inf)) - 1)
        return rows[place][1], rows[place + 1][0] if place + 1 < len(rows) else inf


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the trace {file}: {error}. The one that ships is called {example_trace.NAME!r}"
        ) from error


def _rows(lines: Iterable[str], file: str) -> dict[int, list[tuple[float, float]]]:
    """Reads a trace: client -> (time, duration) in order of time. Raises ConfigError with the line of a bad row."""
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
