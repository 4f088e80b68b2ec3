"""Time. The virtual clock orders results by simulated finish times and never sleeps; the wall clock by real ones."""

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fedsim.payload import Answer, Downlink, Failure, Job

Result = Answer | Failure


class Messenger(Protocol):
    """What a clock needs to run jobs: `fedsim.transport.messenger.Messenger` or `direct.DirectMessenger`."""

    def send(self, jobs: Sequence[Job]) -> list[Failure]: ...

    def receive(self, timeout: float | None = None) -> list[Result]: ...


@dataclass(frozen=True)
class Event:
    """A result, and when its job was sent and came back on this clock."""

    result: Result
    sent: float
    arrived: float


@dataclass
class PendingJob:
    """A job that is not finished in virtual time."""

    finish: float
    train: bool
    client: int
    sent: float
    job: Job
    result: Result | None = None  # known before its time: it is computed at once

    @property
    def turn(self) -> tuple[float, bool, int]:
        """When it comes: an evaluation takes no time and comes first, and ties do not depend on the machine."""
        return self.finish, self.train, self.client

    def without_model(self) -> "PendingJob":
        """A copy for a checkpoint: with the result known, the model that was sent is not needed any more."""
        assert self.result is not None
        job = replace(self.job, down=Downlink())
        if isinstance(self.result, Answer):
            return replace(self, job=job, result=Answer(job, self.result.uplink, self.result.report))
        return replace(self, job=job, result=Failure(job, self.result.reason, refused=self.result.refused))


class Clock(ABC):
    """Sends jobs and hands back their results one by one, in the order of its own time."""

    injects: bool  # whether clients sleep their delays

    def __init__(self) -> None:
        self.evaluating = 0  # evaluation jobs in flight

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
        """The next result; None if no job is in flight, or none finishes before `deadline`: then `now` is that time."""

    def pending_jobs(self) -> list[PendingJob]:
        """The jobs in flight with their results, for a checkpoint. The wall clock has none: it cannot stop the time."""
        return []


class VirtualClock(Clock):
    """The duration of a job is drawn when it is sent, so its finish time is known. The clock waits for the job that
    finishes first and keeps other results until their time."""

    injects = False

    def __init__(self, messenger: Messenger, now: float = 0.0, pending: Sequence[PendingJob] = ()) -> None:
        super().__init__()
        self._now, self._messenger = now, messenger
        self._pending = sorted((job.turn, job) for job in pending)  # a heap; no two jobs have the same turn
        self._unanswered: dict[tuple[int, bool], PendingJob] = {}  # pending jobs without a result

    @property
    def now(self) -> float:
        return self._now

    @property
    def due(self) -> bool:
        return bool(self._pending) and self._pending[0][1].finish <= self._now

    def send(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            pending = PendingJob(self._now + job.simulated_delay.duration, job.train, job.client, self._now, job)
            if job.simulated_delay.absence is None:
                self._unanswered[_key(job)] = pending
            else:
                pending.result = Failure(job, "dropped out")
            heapq.heappush(self._pending, (pending.turn, pending))
            self.evaluating += not job.train
        self._keep(self._messenger.send([job for job in jobs if job.simulated_delay.absence is None]))

    def next(self, deadline: float | None) -> Event | None:
        if not self._pending or (deadline is not None and self._pending[0][1].finish > deadline):
            self._now = self._now if deadline is None else max(self._now, deadline)
            return None
        _, first = heapq.heappop(self._pending)
        while first.result is None:
            self._keep(self._messenger.receive())
        self._now = max(self._now, first.finish)
        self.evaluating -= not first.job.train
        return Event(first.result, first.sent, self._now)

    def pending_jobs(self) -> list[PendingJob]:
        while self._unanswered:
            self._keep(self._messenger.receive())
        return [job for _, job in sorted(self._pending)]

    def _keep(self, results: Sequence[Result]) -> None:
        for result in results:
            self._unanswered.pop(_key(result.job)).result = result


class WallClock(Clock):
    """Real order, real seconds since the run began."""

    injects = True

    def __init__(self, messenger: Messenger, now: float = 0.0) -> None:
        super().__init__()
        self._messenger = messenger
        self._start = time.monotonic() - now
        self._sent: dict[tuple[int, bool], float] = {}
        self._results: list[Result] = []  # received, and not handed back yet

    @property
    def now(self) -> float:
        return time.monotonic() - self._start

    @property
    def due(self) -> bool:
        return bool(self._results)

    def send(self, jobs: Sequence[Job]) -> None:
        self._sent |= {_key(job): self.now for job in jobs}
        self.evaluating += sum(not job.train for job in jobs)
        self._results += self._messenger.send(jobs)

    def next(self, deadline: float | None) -> Event | None:
        while not self._results and self._sent:
            left = None if deadline is None else deadline - self.now
            if left is not None and left <= 0:
                return None
            self._results += self._messenger.receive(left)
        if not self._results:
            if deadline is not None:
                time.sleep(max(0.0, deadline - self.now))  # no job is in flight, an absent client is back at that time
            return None
        result = self._results.pop(0)
        self.evaluating -= not result.job.train
        return Event(result, self._sent.pop(_key(result.job)), self.now)


def _key(job: Job) -> tuple[int, bool]:
    """A client has at most one training job and one evaluation in flight."""
    return job.client, job.train
