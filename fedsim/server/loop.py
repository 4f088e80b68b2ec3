"""The one loop of every run: admit clients, send jobs, take results, update when the pace says so.

Synchronous and asynchronous runs differ in their pace alone.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Generic, TypeVar

from fedsim.algorithm import ServerStrategy
from fedsim.attacks import attack_of
from fedsim.client_table import is_in_file
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.filters import roles_of
from fedsim.payload import Arrival, Downlink, Failure, Job, arrays_in, server_made_personal
from fedsim.results.record import BENCHED, Record
from fedsim.server.clock import Clock, Event
from fedsim.server.fleet import Fleet
from fedsim.server.pace import Lazy, Pace, Situation
from fedsim.server.stragglers import JobProfile, Stragglers
from fedsim.transport.liveness import Liveness
from fedsim.weights import is_finite

S = TypeVar("S")
log = logging.getLogger(__name__)


class Loop(Generic[S]):
    """Drives one run. `checkpoint(step, state)` is called when a step is complete.

    Where every training job ends within its step, evaluation is part of the training jobs. Elsewhere evaluations are
    messages of their own, if a client may be evaluated while it trains (`overlap`). `liveness` is for grids whose nodes
    come and go.
    """

    def __init__(
        self,
        server: ServerStrategy[Any, S],
        fleet: Fleet,
        pace: Pace,
        clock: Clock,
        stragglers: Stragglers,
        config: RunConfig,
        record: Record,
        checkpoint: Callable[[int, Any], None] = lambda step, state: None,
        overlap: bool = True,
        liveness: Liveness | None = None,
    ) -> None:
        self.server, self.fleet, self.pace, self.clock, self.stragglers = server, fleet, pace, clock, stragglers
        self.config, self.record, self.checkpoint, self.overlap = config, record, checkpoint, overlap
        self.liveness = liveness
        self._failures: list[Failure] = []  # since the last step
        self._job_indices = Counter[int]()  # training jobs per client since the last step
        self._started_from = Counter(fleet.busy.values())  # step -> training jobs in flight that started from it
        self._uplink_bytes: int | None = None  # of every uplink, once known

    def run(self, state: S, step: int = 0) -> S:
        """Runs from `step` to the end and returns the final state. Raises FedsimError if a round has no result.

        A round is evaluated while clients train in the next one: a run that reaches its target ends one round later.
        """
        while not self._is_last(step):
            arrivals = self._collect_arrivals(state, step)
            began = time.perf_counter()
            state = self.server.update(state, self._attacked(arrivals))
            if state is None:
                raise FedsimError(f"{self.config.algorithm}: update returned None instead of the next state")
            step += 1
            self._check_state(state, step, arrivals)
            self._failures += self._refusals()
            seconds, clusters = time.perf_counter() - began, self.server.clusters(state)
            measured = self.server.result_metrics(state)
            self.record.step(step, self.clock.now, arrivals, self._failures, seconds, clusters, measured)
            self.record.matrices.keep(step, self.server.matrices(state))
            self._failures = []
            if self._checkpoints_after(step):
                self.checkpoint(step, state)
        if self.liveness is not None:
            self._await_busy_clients(step)
        self._evaluate_now(state, step)
        self.record.evaluated(step)
        if self.fleet.unseen:
            self._meet_newcomers(state, step)
        self.record.failed(step, self._failures + self._refusals())
        return state

    def _collect_arrivals(self, state: S, step: int) -> list[Arrival]:
        """The results for the next update; also evaluates `state`, if the step is one that is evaluated."""
        began, cohort, buffer = self.clock.now, 0, list[Arrival]()
        self._job_indices.clear()
        if self.liveness is not None:
            self.liveness.check()
        within_training = self._evaluates(step) and (self.pace.rounds or not self.overlap)
        if self._evaluates(step) and not within_training:
            self._evaluate_now(state, step)
        while not self.pace.ready(now := self._situation(step, began, cohort, buffer)):
            admitted = self.pace.admit(now)
            jobs = [self._training_job(state, client, step, within_training) for client in admitted]
            if within_training:
                others = sorted(set(now.idle) - set(admitted))
                jobs += [self._evaluation_job(state, client, step) for client in others]
            cohort, within_training = cohort + len(admitted), False
            if jobs:
                self._send(jobs)
                now = self._situation(step, began, cohort, buffer)
            deadline = self._deadline(now)
            event = self.clock.next(deadline)
            if event is None and deadline is None and not (self.liveness and self.liveness.wait_for_return()):
                raise FedsimError(self._no_result(step + 1))
            if event is not None and (arrival := self._process(event, step)) is not None:
                buffer.append(arrival)
            if cohort and not buffer and not self.fleet.busy and not self.clock.due:
                self._check_failures(step)
                cohort = 0
            if not buffer and event is not None and isinstance(event.result, Failure):
                self._check_failures(step, of=len(self.fleet) - len(self.fleet.benched) or 1)
            self.record.progress(step, len(buffer), len(self.fleet.busy))
        if self._evaluates(step):
            self.record.evaluated(step)
        return buffer

    def _check_state(self, state: S, step: int, arrivals: Sequence[Arrival]) -> None:
        """Raises FedsimError if an update made the state useless: neither a round nor a checkpoint goes on from it. Tables
        in files are not read here: they are larger than the memory."""
        for name, array in arrays_in(state):
            if not is_in_file(array) and not is_finite(array):
                ids = ", ".join(str(arrival.client) for arrival in arrivals[:10])
                more = f" and {len(arrivals) - 10} more" if len(arrivals) > 10 else ""
                raise FedsimError(
                    f"round {step}: the update of {self.config.algorithm} made {name or 'its state'} NaN or infinite, from "
                    f"finite results of the clients {ids}{more}. Lower lr or server-optimizer.lr, or choose an aggregator "
                    "that ignores outliers. The last checkpoint is from before"
                )

    def _attacked(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """The arrivals as the update receives them: an omniscient attacker replaces those of malicious clients."""
        attack = attack_of(self.config)
        return attack.on_server(arrivals, roles_of(self.server.expects())) if self.config.attack != "none" else arrivals

    def _situation(self, step: int, began: float, cohort: int, buffer: Sequence[Arrival]) -> Situation:
        fleet, clock = self.fleet, self.clock
        current, first = self._started_from[step], buffer[0].arrived if buffer else None
        idle = Lazy(lambda: fleet.idle(clock.now))  # most events admit no client
        return Situation(step, clock.now, began, idle, len(fleet.busy), current, cohort, len(buffer), first, clock.due)

    def _deadline(self, now: Situation) -> float | None:
        """When to stop waiting for the next result: at the pace's deadline, or when a client returns. Not in the past:
        a result that is due now is still taken."""
        times = self.pace.deadline(now), self.fleet.next_return(now.now)
        return max((min(t for t in times if t is not None)), self.clock.now) if times != (None, None) else None

    def _training_job(self, state: S, client: int, step: int, evaluate: bool) -> Job:
        """`evaluate`: the client also tests the received and its personal model before it trains."""
        down = self.server.instruct(state, client, train=True)
        job_index = self._job_indices[client]
        self._job_indices[client] += 1
        profile = JobProfile(client, step, job_index, self.clock.now, self._samples(client), self._bytes(down))
        # Without rounds it is unknown in which step the result arrives: every local model is tested.
        test_local = self._evaluates(step + 1) or not self.pace.rounds
        delay = self.stragglers.simulated_delay(profile)
        return Job(client, step, down, True, evaluate, evaluate, test_local, delay, job_index)

    def _evaluation_job(self, state: S, client: int, step: int) -> Job:
        """A job without training. The state of a busy client may be changing: its personal model is tested only if the
        server made it."""
        idle, last = client not in self.fleet.busy, self._is_last(step)
        down = self.server.instruct(state, client, train=False)
        test_personal = idle or server_made_personal(down)
        return Job(client, step, down, train=False, test_received=True, test_personal=test_personal, keep=idle and last)

    def _evaluate_now(self, state: S, step: int) -> None:
        """Evaluates every client that can answer, with messages of their own that take no virtual time."""
        present = self.fleet.idle(self.clock.now) + (list(self.fleet.busy) if self.overlap else [])
        if present:
            self._send([self._evaluation_job(state, client, step) for client in sorted(present)])
        while self.clock.evaluating and (event := self.clock.next(None)) is not None:
            self._process_after_end(event, step)  # on the wall clock a training job may end during the last evaluation

    def _meet_newcomers(self, state: S, step: int) -> None:
        """Gives the final model to the clients that never took part, who test it and what they make of it."""
        downs = {client.id: self.server.newcomer(state, client.id) for client in self.fleet.unseen}
        self._send([Job(c, step, d, False, test_received=True, keep=True, newcomer=True) for c, d in downs.items()])
        while self.clock.evaluating and (event := self.clock.next(None)) is not None:
            self._process_after_end(event, step)
        self.record.met_newcomers(step)

    def _await_busy_clients(self, step: int) -> None:
        """Waits for clients that still train after the last step: without overlap they cannot be evaluated before."""
        while self.fleet.busy and (event := self.clock.next(None)) is not None:
            self._process_after_end(event, step)

    def _send(self, jobs: Sequence[Job]) -> None:
        self.fleet.busy |= {job.client: job.step for job in jobs if job.train}
        self._started_from.update(job.step for job in jobs if job.train)
        self.record.sent(jobs, self.clock.now)
        self.clock.send(jobs)

    def _process(self, event: Event, step: int) -> Arrival | None:
        """Records a result; returns it if it is one of training that the pace keeps for the next update."""
        result = event.result
        job = result.job
        if job.train:
            del self.fleet.busy[job.client]
            self._started_from[job.step] -= 1
        self.record.reported(result)
        if isinstance(result, Failure):
            self._failures.append(result)
            self._note_refusal(result)
            self.record.wasted(job, event.sent, event.arrived, result.reason)
            if result.absence is not None or result.offline:
                absence = inf if result.absence is None else result.absence
                self.fleet.absent_until[job.client] = event.arrived + absence
            if result.offline and self.liveness is not None:
                log.warning("client %d is lost: %s", job.client, result.reason, extra={"client": job.client})
            return None
        if result.uplink is None:
            return None
        self.fleet.refused.pop(job.client, None)  # an evaluation that is accepted redeems no refused training
        age = step - job.step
        arrival = Arrival(job.client, job.step, result.uplink, event.sent, event.arrived, age, result.cost)
        if not self.pace.keeps(age):
            self.record.wasted(job, event.sent, event.arrived, "late")
            return None
        return arrival

    def _note_refusal(self, failure: Failure) -> None:
        """Benches a client whose answers are refused again and again."""
        job, limit = failure.job, self.config.refusals
        if not (failure.refused and self.fleet.note_refusal(job.client, limit)):
            return
        reason = f"{BENCHED}: {limit} of its answers in a row were refused"
        log.warning("client %d %s", job.client, reason, extra={"client": job.client})
        self._failures.append(Failure(Job(job.client, job.step, Downlink(), train=False), reason))

    def _process_after_end(self, event: Event, step: int) -> None:
        """Records a result after the last update, where that of a training job is wasted."""
        if self._process(event, step) is not None:
            self.record.wasted(event.result.job, event.sent, event.arrived, "the run ended")

    def _refusals(self) -> list[Failure]:
        """Takes the clients that returned since the last call and may not take part."""
        if self.liveness is None:
            return []
        found, self.liveness.refusals = self.liveness.refusals, []
        return found

    def _check_failures(self, step: int, of: int = 1) -> None:
        """Raises FedsimError if so many clients had an error since the last step. One is enough when a whole cohort has
        failed; where clients are kept busy without cohorts, it must be everyone. Absent ones are asked again instead."""
        if len({f.job.client for f in self._failures if f.absence is None and not f.offline}) >= of:
            raise FedsimError(self._no_result(step + 1))

    def _samples(self, client: int) -> int:
        config, own = self.config, self.fleet[client].train
        return config.local_steps * (config.batch_size or own) or config.local_epochs * own

    def _bytes(self, down: Downlink) -> int:
        if self._uplink_bytes is None:
            self._uplink_bytes = sum(spec.nbytes for spec in self.server.expects().values())
        return down.nbytes + self._uplink_bytes

    def _is_last(self, step: int) -> bool:
        return step >= self.config.rounds or self.record.ends_early

    def _evaluates(self, step: int) -> bool:
        return step % self.config.eval_every == 0 or step == self.config.rounds

    def _checkpoints_after(self, step: int) -> bool:
        every = self.config.checkpoint_every
        return self._is_last(step) or (every > 0 and step % every == 0)

    def _no_result(self, number: int) -> str:
        reasons = "; ".join(f"client {f.job.client}: {f.reason}" for f in self._failures[:3])
        return f"round {number} got no result from any client. {reasons or 'No client is left to ask.'}"
