"""Time. The virtual clock orders arrivals by simulated finish times and never sleeps; the wall clock by real ones."""

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedsim.courier import Courier
from fedsim.payload import Answer, Downlink, Failure, Job

Result = Answer | Failure


@dataclass(frozen=True)
class Event:
    """A result, and when its job was sent and came back on this clock."""

    result: Result
    sent: float
    arrived: float


@dataclass(order=True)
class Flight:
    """A job on its way; ordered so that ties never depend on the machine."""

    finish: float
    train: bool  # an evaluation takes no time and comes first
    client: int
    sent: float = field(compare=False)
    job: Job = field(compare=False)
    result: Answer | Failure | None = field(compare=False, default=None)  # in hand, although its time has not come


class Clock(ABC):
    """Sends jobs and hands back their results one by one, in the order of its own time."""

    injects: bool  # whether clients sleep their delays

    def __init__(self) -> None:
        self.evaluating = 0  # evaluation jobs out

    @property
    @abstractmethod
    def now(self) -> float: ...

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether the next result arrives at this very moment."""

    @abstractmethod
    def send(self, jobs: Sequence[Job]) -> None: ...

    @abstractmethod
    def next(self, deadline: float | None) -> Event | None:
        """The next result; None when nothing is out, or when nothing comes before `deadline`: then it is that late."""

    def settle(self) -> list[Flight]:
        """What is out, for a checkpoint; only a simulated clock can wait for it without time passing."""
        return []


class VirtualClock(Clock):
    """The duration is drawn at dispatch, so the finish time is known: wait for the earliest finisher, park the rest."""

    injects = False

    def __init__(self, courier: Courier, now: float = 0.0, flights: Sequence[Flight] = ()) -> None:
        super().__init__()
        self._now, self._courier, self._flights = now, courier, list(flights)
        self._out: dict[tuple[int, bool], Flight] = {}  # flights whose result is not in hand yet
        heapq.heapify(self._flights)

    @property
    def now(self) -> float:
        return self._now

    @property
    def due(self) -> bool:
        return bool(self._flights) and self._flights[0].finish <= self._now

    def send(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            flight = Flight(self._now + job.fate.duration, job.train, job.client, self._now, job)
            if job.fate.away is None:
                self._out[_key(job)] = flight
            else:
                flight.result = Failure(job, "dropped out")
            heapq.heappush(self._flights, flight)
            self.evaluating += not job.train
        self._park(self._courier.send([job for job in jobs if job.fate.away is None]))

    def next(self, deadline: float | None) -> Event | None:
        if not self._flights or (deadline is not None and self._flights[0].finish > deadline):
            self._now = self._now if deadline is None else max(self._now, deadline)
            return None
        flight = heapq.heappop(self._flights)
        while flight.result is None:
            self._park(self._courier.receive())
        self._now = max(self._now, flight.finish)
        self.evaluating -= not flight.job.train
        return Event(flight.result, flight.sent, self._now)

    def settle(self) -> list[Flight]:
        while self._out:
            self._park(self._courier.receive())
        return sorted(self._flights)

    def _park(self, results: Sequence[Result]) -> None:
        for result in results:
            self._out.pop(_key(result.job)).result = result


class WallClock(Clock):
    """Real order, real seconds since the run began."""

    injects = True

    def __init__(self, courier: Courier, now: float = 0.0) -> None:
        super().__init__()
        self._courier = courier
        self._start = time.monotonic() - now
        self._sent: dict[tuple[int, bool], float] = {}
        self._here: list[Result] = []

    @property
    def now(self) -> float:
        return time.monotonic() - self._start

    @property
    def due(self) -> bool:
        return bool(self._here)

    def send(self, jobs: Sequence[Job]) -> None:
        self._sent |= {_key(job): self.now for job in jobs}
        self.evaluating += sum(not job.train for job in jobs)
        self._here += self._courier.send(jobs)

    def next(self, deadline: float | None) -> Event | None:
        while not self._here and self._sent:
            left = None if deadline is None else deadline - self.now
            if left is not None and left <= 0:
                return None
            self._here += self._courier.receive(left)
        if not self._here:
            if deadline is not None:
                time.sleep(max(0.0, deadline - self.now))  # nothing is out, somebody is expected back at that time
            return None
        result = self._here.pop(0)
        self.evaluating -= not result.job.train
        return Event(result, self._sent.pop(_key(result.job)), self.now)


def _key(job: Job) -> tuple[int, bool]:
    """A client has at most one training job and one evaluation out."""
    return job.client, job.train


def unloaded(flight: Flight) -> Flight:
    """A flight whose result is in hand needs its job's model no more."""
    assert flight.result is not None
    job = Job(**{**vars(flight.job), "down": Downlink()})
    result = flight.result
    bare = Answer(job, result.uplink, result.report) if isinstance(result, Answer) else Failure(job, result.reason)
    return Flight(flight.finish, flight.train, flight.client, flight.sent, job, bare)
