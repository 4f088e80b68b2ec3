"""The one loop: admit, send, take what arrives, step when the pace says so. Synchronous and asynchronous alike."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fedsim.clock import Clock, Event
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.fleet import Fleet
from fedsim.pace import Pace
from fedsim.payload import Arrival, Downlink, Failure, Job
from fedsim.record import Record

S = TypeVar("S")


class Server(Protocol[S]):
    """What the loop asks of a strategy."""

    def instruct(self, state: S, client: int) -> Downlink: ...

    def update(self, state: S, arrivals: Sequence[Arrival]) -> S: ...


class Loop(Generic[S]):
    """Drives one run. `checkpoint(step, state)` is called when a step is complete and nothing is out."""

    def __init__(
        self,
        server: Server[S],
        fleet: Fleet,
        pace: Pace,
        clock: Clock,
        config: RunConfig,
        record: Record,
        checkpoint: Callable[[int, Any], None] = lambda step, state: None,
    ) -> None:
        self.server, self.fleet, self.pace, self.clock = server, fleet, pace, clock
        self.config, self.record, self.checkpoint = config, record, checkpoint
        self._failures: list[Failure] = []  # since the last step

    def run(self, state: S, step: int = 0) -> S:
        rounds, buffer, watched = self.config.rounds, list[Arrival](), step - 1
        while step < rounds:
            idle = self.fleet.idle()
            cohort = self.pace.admit(idle, self.clock.training, len(buffer), step)
            jobs = [self._job(state, client, step) for client in cohort]
            if watched < step and self._tests(step):
                jobs += self._watch(state, step, [c for c in idle if c not in cohort])
                watched = step
            self._send(jobs)
            event = self.clock.next(self.pace.deadline(self.clock.now))
            if event is not None and (arrival := self._take(event, step)) is not None:
                buffer.append(arrival)
            self.record.progress(step, len(buffer), self.clock.training)
            if self.pace.ready(self.clock.training, len(buffer), self.clock.now):
                state = self.server.update(state, buffer)
                step += 1
                self.record.step(step, self.clock.now, buffer, self._failures)
                buffer, self._failures = [], []
                if self._saves(step):
                    self.checkpoint(step, state)
            elif not buffer and not self.clock.training and (event is None or self._failures):
                raise FedsimError(self._nobody_left(step + 1))
        self._send(self._watch(state, step, self.fleet.idle()))
        while (event := self.clock.next(None)) is not None:
            self._take(event, step)
        return state

    def _job(self, state: S, client: int, step: int) -> Job:
        down = self.server.instruct(state, client)
        return Job(client, step, down, test_received=self._tests(step), test_local=self._tests(step + 1))

    def _watch(self, state: S, step: int, clients: Sequence[int]) -> list[Job]:
        """Evaluation-only jobs for those who are not training: the numbers of a step cover everyone who can answer."""
        return [Job(c, step, self.server.instruct(state, c), train=False, test_received=True) for c in clients]

    def _send(self, jobs: Sequence[Job]) -> None:
        self.fleet.busy |= {job.client for job in jobs if job.train}
        self.record.sent(jobs)
        if jobs:
            self.clock.send(jobs)

    def _take(self, event: Event, step: int) -> Arrival | None:
        result = event.result
        job = result.job
        self.fleet.busy -= {job.client} if job.train else set()
        self.record.reported(result)
        if isinstance(result, Failure):
            self._failures.append(result)
            if result.offline:
                self.fleet.lost.add(job.client)
            return None
        if result.uplink is None:
            return None
        return Arrival(job.client, job.step, result.uplink, event.sent, event.arrived).aged(step)

    def _tests(self, step: int) -> bool:
        return step % self.config.eval_every == 0 or step == self.config.rounds

    def _saves(self, step: int) -> bool:
        every = self.config.checkpoint_every
        return step == self.config.rounds or (every > 0 and step % every == 0)

    def _nobody_left(self, number: int) -> str:
        reasons = "; ".join(f"client {f.job.client}: {f.reason}" for f in self._failures[:3])
        return f"round {number} got no result from any client. {reasons or 'No client is left to ask.'}"
