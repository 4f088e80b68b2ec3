"""Time. The virtual clock orders arrivals by simulated finish times and never sleeps; the wall clock by real ones."""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedsim.courier import Courier
from fedsim.payload import Answer, Failure, Job
from fedsim.stragglers import Stragglers


@dataclass(frozen=True)
class Event:
    """An answer or a failure, and when its job was sent and came back on this clock."""

    result: Answer | Failure
    sent: float
    arrived: float


class Clock(Protocol):
    """Sends jobs and hands back their results one by one, in the order of its own time."""

    training: int  # training jobs out

    @property
    def now(self) -> float: ...

    def send(self, jobs: Sequence[Job]) -> None: ...

    def next(self, deadline: float | None) -> Event | None:
        """The next result; None when nothing is out, or when nothing comes before `deadline`."""


def _key(job: Job) -> tuple[int, bool]:
    """A client has at most one training job and one evaluation out."""
    return job.client, job.train


@dataclass(order=True)
class _Flight:
    """A job on its way; ordered by finish time, then client, so that ties never depend on the machine."""

    finish: float
    client: int
    sent: float = field(compare=False)
    job: Job = field(compare=False)


class VirtualClock:
    """The duration is drawn at dispatch, so the finish time is known: wait for the earliest finisher, park the rest."""

    def __init__(self, courier: Courier, stragglers: Stragglers, now: float = 0.0) -> None:
        self.now = now
        self.training = 0
        self._courier, self._stragglers = courier, stragglers
        self._flights: list[_Flight] = []
        self._parked: dict[tuple[int, bool], Answer | Failure] = {}  # results in hand whose time has not come

    def send(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            duration = self._stragglers.duration(job.client, job.step) if job.train else 0.0
            heapq.heappush(self._flights, _Flight(self.now + duration, job.client, self.now, job))
        self.training += sum(job.train for job in jobs)
        self._park(self._courier.send(jobs))

    def next(self, deadline: float | None) -> Event | None:
        if not self._flights or (deadline is not None and self._flights[0].finish > deadline):
            self.now = self.now if deadline is None else max(self.now, deadline)
            return None
        flight = heapq.heappop(self._flights)
        while (key := _key(flight.job)) not in self._parked:
            self._park(self._courier.receive())
        self.now = max(self.now, flight.finish)
        self.training -= flight.job.train
        return Event(self._parked.pop(key), flight.sent, self.now)

    def _park(self, results: Sequence[Answer | Failure]) -> None:
        for result in results:
            self._parked[_key(result.job)] = result


class WallClock:
    """Real order, real seconds since the run began."""

    def __init__(self, courier: Courier, now: float = 0.0) -> None:
        self.training = 0
        self._courier = courier
        self._start = time.monotonic() - now
        self._sent: dict[tuple[int, bool], float] = {}
        self._here: list[Answer | Failure] = []

    @property
    def now(self) -> float:
        return time.monotonic() - self._start

    def send(self, jobs: Sequence[Job]) -> None:
        self._sent |= {_key(job): self.now for job in jobs}
        self.training += sum(job.train for job in jobs)
        self._here += self._courier.send(jobs)

    def next(self, deadline: float | None) -> Event | None:
        while not self._here and self._sent:
            left = None if deadline is None else deadline - self.now
            if left is not None and left <= 0:
                return None
            self._here += self._courier.receive(left)
        if not self._here:
            return None
        result = self._here.pop(0)
        self.training -= result.job.train
        return Event(result, self._sent.pop(_key(result.job)), self.now)
