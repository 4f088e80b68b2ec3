"""Jobs on fedsim's own grids: they go to the clients as they are, without messages, encoding or copies."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol, runtime_checkable

from fedsim.client.groups import AVERAGED_FROM, JobGroup, RunningMean, groups_of
from fedsim.errors import WireError
from fedsim.filters import Filter, filtered_on_server
from fedsim.payload import Answer, Failure, Job, Role, RunIdentity
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck


@runtime_checkable
class JobGrid(Protocol):
    """A grid that runs jobs itself. Every job gets a result; the grid keeps the time limit of a job."""

    def send_groups(self, groups: Sequence[JobGroup]) -> None:
        """Queues jobs; those of a group are given to one worker."""

    def receive_results(self, timeout: float) -> list[Answer | Failure]:
        """Waits for at least one result, at most `timeout` seconds; returns all that are there."""


class DirectMessenger:
    """Sends jobs to a `JobGrid` and checks what comes back, as `Messenger` does on other grids."""

    def __init__(
        self,
        grid: JobGrid,
        run: RunIdentity,
        classes: int,
        sleeps: bool = False,
        at_once: int = 1,
        averages: bool = False,
    ) -> None:
        """`at_once`: so many clients may be trained at once. `averages`: the results of all jobs that are sent together
        go into one update, which needs only means of them."""
        self._grid, self.run, self._classes, self._sleeps = grid, run, classes, sleeps
        self._at_once, self._averages = 1 if sleeps else at_once, averages
        self._cohort: CohortMean | None = None  # of the jobs sent last, if their updates are averaged
        self.check = AnswerCheck()
        self.filters: Sequence[Filter] = ()
        self.roles: Mapping[str, Role] = {}  # that clients are told, see `filters.sent_roles`
        self.on_poll: Callable[[], bool] = lambda: False  # as of `Messenger`; never called: these grids can wait
        self.on_communication: Callable[[float], None] = lambda seconds: None  # told the seconds of sending

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        """Sends jobs; none is refused."""
        began = time.perf_counter()
        train, evaluate = ([job for job in jobs if job.train is kind] for kind in (True, False))
        averages = self._averages and len(train) >= AVERAGED_FROM
        template = JobGroup((), self._classes, self.roles, self._sleeps)
        groups = groups_of(train, replace(template, averages=averages), self._at_once)
        self._grid.send_groups([*groups, *(replace(template, jobs=[job]) for job in evaluate)])
        if averages:
            self._cohort = CohortMean(train)
        self.on_communication(time.perf_counter() - began)
        return []

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Waits for at least one result, at most `timeout` seconds; a result that does not fit is a failure."""
        found = self._grid.receive_results(inf if timeout is None else timeout)
        results = [filtered_on_server(self.filters, self._checked(result), self.check.expects) for result in found]
        return results if self._cohort is None else self._cohort.without_updates(results)

    def _checked(self, result: Answer | Failure) -> Answer | Failure:
        if isinstance(result, Failure):
            return result
        try:
            self.check.check(result)
        except WireError as problem:
            return wire.refusal(result.job, problem)
        return result


class CohortMean:
    """Averages the updates of a cohort as they arrive, in the order of its clients: the last answer holds the mean, and the
    server's memory does not grow with the cohort."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._clients = deque(job.client for job in jobs)  # whose results were not taken yet, in order
        self._early: dict[int, Answer | Failure] = {}  # results that wait for those of clients before them
        self._mean = RunningMean()
        self._last: Answer | None = None  # the latest answer, kept back until it is known whether it is the last

    def without_updates(self, results: Sequence[Answer | Failure]) -> list[Answer | Failure]:
        """Takes results; returns those that are ready. An update that cannot be averaged stays with its client."""
        ready = [result for result in results if not result.job.train]
        self._early |= {result.job.client: result for result in results if result.job.train}
        while self._clients and self._clients[0] in self._early:
            result = self._early.pop(self._clients.popleft())
            try:
                taken = self._mean.take(result) if isinstance(result, Answer) else None
            except ValueError:
                taken = None
            if taken is None:
                ready.append(result)
                continue
            ready += [] if self._last is None else [self._last]
            self._last = taken
        if not self._clients and self._last is not None:
            ready.append(self._mean.given_to(self._last))
            self._last = None
        return ready
