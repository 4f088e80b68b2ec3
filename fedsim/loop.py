"""The one loop: admit, send, take what arrives, step when the pace says so. Synchronous and asynchronous alike."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from fedsim.attendance import Attendance
from fedsim.clock import Clock, Event
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.fleet import Fleet
from fedsim.pace import Pace, Situation
from fedsim.payload import Arrival, Downlink, Failure, Job
from fedsim.record import Record
from fedsim.stragglers import Stragglers, Work

S = TypeVar("S")


class Server(Protocol[S]):
    """What the loop asks of a strategy."""

    def instruct(self, state: S, client: int) -> Downlink: ...

    def update(self, state: S, arrivals: Sequence[Arrival]) -> S: ...

    def expects(self) -> Mapping[str, int]: ...

    def matrices(self, state: S) -> Mapping[str, NDArray[Any]]: ...


class Loop(Generic[S]):
    """Drives one run. `checkpoint(step, state)` is called when a step is complete.

    Evaluation rides on the training jobs where each of them ends within its step. Elsewhere it is an exchange of its own, if
    a client may be evaluated while it trains (`overlap`). On a grid whose nodes come and go, `attendance` knows who is back.
    """

    def __init__(
        self,
        server: Server[S],
        fleet: Fleet,
        pace: Pace,
        clock: Clock,
        stragglers: Stragglers,
        config: RunConfig,
        record: Record,
        checkpoint: Callable[[int, Any], None] = lambda step, state: None,
        overlap: bool = True,
        attendance: Attendance | None = None,
    ) -> None:
        self.server, self.fleet, self.pace, self.clock, self.stragglers = server, fleet, pace, clock, stragglers
        self.config, self.record, self.checkpoint, self.overlap = config, record, checkpoint, overlap
        self.attendance = attendance
        self._failures: list[Failure] = []  # since the last step
        self._turns = Counter[int]()  # training jobs per client since then

    def run(self, state: S, step: int = 0) -> S:
        while step < self.config.rounds:
            arrivals = self._gather(state, step)
            began = time.perf_counter()
            state = self.server.update(state, arrivals)
            step += 1
            self._failures += self._refusals()
            self.record.step(step, self.clock.now, arrivals, self._failures, time.perf_counter() - began)
            self.record.matrices.keep(step, self.server.matrices(state))
            self._failures = []
            if self._saves(step):
                self.checkpoint(step, state)
        if self.attendance is not None:
            self._let_them_finish(step)
        self._evaluate_now(state, step)
        self.record.evaluated(step)
        self.record.failed(step, self._failures + self._refusals())
        return state

    def _gather(self, state: S, step: int) -> list[Arrival]:
        """One server step's worth of results, and the accuracies of the state it started from."""
        began, cohort, buffer = self.clock.now, 0, list[Arrival]()
        self._turns.clear()
        if self.attendance is not None:
            self.attendance.look()
        riding = self._tests(step) and (self.pace.rounds or not self.overlap)
        if self._tests(step) and not riding:
            self._evaluate_now(state, step)
        while not self.pace.ready(now := self._situation(step, began, cohort, buffer)):
            admitted = self.pace.admit(now)
            jobs = [self._job(state, client, step, riding) for client in admitted]
            if riding:
                jobs += [self._watch(state, client, step) for client in now.idle if client not in admitted]
            cohort, riding = cohort + len(admitted), False
            self._send(jobs)
            deadline = self._deadline(step, began, cohort, buffer)
            event = self.clock.next(deadline)
            if event is None and deadline is None and not (self.attendance and self.attendance.wait()):
                raise FedsimError(self._nobody_left(step + 1))
            if event is not None and (arrival := self._take(event, step)) is not None:
                buffer.append(arrival)
            if cohort and not buffer and not self.fleet.busy and not self.clock.due:
                cohort = self._again(step)
            self.record.progress(step, len(buffer), len(self.fleet.busy))
        if self._tests(step):
            self.record.evaluated(step)
        return buffer

    def _situation(self, step: int, began: float, cohort: int, buffer: Sequence[Arrival]) -> Situation:
        fleet, clock = self.fleet, self.clock
        current = sum(base == step for base in fleet.busy.values())
        first = buffer[0].arrived if buffer else None
        idle = fleet.idle(clock.now)
        return Situation(step, clock.now, began, idle, len(fleet.busy), current, cohort, len(buffer), first, clock.due)

    def _deadline(self, step: int, began: float, cohort: int, buffer: Sequence[Arrival]) -> float | None:
        """When to look up from waiting: the pace's own deadline, or somebody's return. Never in the past, so that what is
        due now is still taken."""
        times = self.pace.deadline(self._situation(step, began, cohort, buffer)), self.fleet.next_return(self.clock.now)
        return max((min(t for t in times if t is not None)), self.clock.now) if times != (None, None) else None

    def _job(self, state: S, client: int, step: int, riding: bool) -> Job:
        down = self.server.instruct(state, client)
        turn = self._turns[client]
        self._turns[client] += 1
        work = Work(client, step, turn, self.clock.now, self._samples(client), self._bytes(down))
        # Without rounds nobody knows in which step the result arrives: a client must not go untested for its rhythm.
        local = self._tests(step + 1) or not self.pace.rounds
        return Job(client, step, down, True, riding, riding, local, self.stragglers.fate(work), turn)

    def _watch(self, state: S, client: int, step: int) -> Job:
        """An evaluation-only job. What a busy client remembers may be changing: only the received model is tested there."""
        idle, last = client not in self.fleet.busy, step == self.config.rounds
        down = self.server.instruct(state, client)
        return Job(client, step, down, train=False, test_received=True, test_personal=idle, keep=idle and last)

    def _evaluate_now(self, state: S, step: int) -> None:
        """Everyone who can answer, in an exchange of its own that takes no virtual time."""
        present = self.fleet.idle(self.clock.now) + (list(self.fleet.busy) if self.overlap else [])
        self._send([self._watch(state, client, step) for client in sorted(present)])
        while self.clock.evaluating and (event := self.clock.next(None)) is not None:
            if self._take(event, step) is not None:  # on the wall clock, while the last evaluation is out
                self.record.wasted(event.result.job, event.sent, event.arrived, "the run ended")

    def _let_them_finish(self, step: int) -> None:
        """Clients that still train cannot be evaluated on a grid without overlap; their results are wasted."""
        while self.fleet.busy and (event := self.clock.next(None)) is not None:
            if self._take(event, step) is not None:
                self.record.wasted(event.result.job, event.sent, event.arrived, "the run ended")

    def _send(self, jobs: Sequence[Job]) -> None:
        self.fleet.busy |= {job.client: job.step for job in jobs if job.train}
        self.record.sent(jobs, self.clock.now)
        if jobs:
            self.clock.send(jobs)

    def _take(self, event: Event, step: int) -> Arrival | None:
        """What an event brings for the next step: a result that the pace keeps, or nothing."""
        result = event.result
        job = result.job
        if job.train:
            del self.fleet.busy[job.client]
        self.record.reported(result)
        if isinstance(result, Failure):
            self._failures.append(result)
            self.record.wasted(job, event.sent, event.arrived, result.reason)
            if result.away is not None or result.offline:
                self.fleet.away[job.client] = event.arrived + (inf if result.away is None else result.away)
            if result.offline and self.attendance is not None:
                print(f"client {job.client} is lost: {result.reason}", flush=True)
            return None
        if result.uplink is None:
            return None
        arrival = Arrival(job.client, job.step, result.uplink, event.sent, event.arrived, cost=result.cost).aged(step)
        if not self.pace.keeps(arrival.staleness):
            self.record.wasted(job, event.sent, event.arrived, "late")
            return None
        return arrival

    def _refusals(self) -> list[Failure]:
        """Clients that came back and may not take part."""
        if self.attendance is None:
            return []
        found, self.attendance.refusals = self.attendance.refusals, []
        return found

    def _again(self, step: int) -> int:
        """A cohort that brought nothing: if its clients only left, others are asked; errors end the run."""
        if any(f.away is None and not f.offline for f in self._failures):
            raise FedsimError(self._nobody_left(step + 1))
        return 0

    def _samples(self, client: int) -> int:
        config = self.config
        return config.local_steps * config.batch_size or config.local_epochs * self.fleet[client].train

    def _bytes(self, down: Downlink) -> int:
        return sum(v.nbytes for v in down.vectors.values()) + 4 * sum(self.server.expects().values())

    def _tests(self, step: int) -> bool:
        return step % self.config.eval_every == 0 or step == self.config.rounds

    def _saves(self, step: int) -> bool:
        every = self.config.checkpoint_every
        return step == self.config.rounds or (every > 0 and step % every == 0)

    def _nobody_left(self, number: int) -> str:
        reasons = "; ".join(f"client {f.job.client}: {f.reason}" for f in self._failures[:3])
        return f"round {number} got no result from any client. {reasons or 'No client is left to ask.'}"
