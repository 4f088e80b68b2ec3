"""The Ray engine: a Flower grid on Ray actors.

There is one worker per core (or GPU share), which keeps data and models of its clients in memory. A client's state is
a value in the object store that goes into a job and comes out of it: any worker can serve any client, and a job whose
worker died is sent again with the state it had. An array that many messages share enters the object store once.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any

import ray
from flwr.app import Error, Message
from ray.exceptions import RayError, RayTaskError

from fedsim.client.groups import JobGroup
from fedsim.config import RunConfig
from fedsim.engine.base import CRASHED, FIRST_NODE, LocalGrid, client_of
from fedsim.engine.ray_queue import CALLS_PER_WORKER, Call, Queued, Slot, Work, share
from fedsim.engine.ray_session import CHECK_SECONDS, LastWords, Watchdog, join, leave, started_here, worker_shares
from fedsim.engine.ray_workers import Workers, result_of
from fedsim.engine.serialize import deserialize, serialize
from fedsim.errors import FedsimError
from fedsim.payload import Answer, ClientState, Failure
from fedsim.transport import wire

log = logging.getLogger(__name__)
ATTEMPTS = 3  # a job is sent again twice before the death of its worker counts as its client's failure
BUNDLE, BUNDLE_SECONDS = 64, 0.1  # short jobs share a call: at most so many, and about so much work
START_SECONDS = 600.0  # a worker that needs longer to start will not come: its machine or its GPU is missing


class RayGrid(LocalGrid):
    """Queues messages and hands them to the workers as these become free."""

    engine = "ray"

    def __init__(self, config: RunConfig, address: str | None = None) -> None:
        super().__init__(config)
        self._joined = join(config.workers, address)
        self._nodes_may_be_lost = address is not None
        self._last_words, self._watchdog = LastWords(), Watchdog()
        try:
            workers, cpus, gpus = worker_shares(config)
        except FedsimError:
            self._disconnect()
            raise
        self._workers = Workers(config, cpus, gpus)
        self._slots = [Slot(None) for _ in range(workers)]
        for slot in self._slots:
            self._start_worker(slot)
        self._seconds: dict[str, float] = {}  # message type -> how long the last such job took
        self._states: dict[int, Any] = {}  # client -> reference to its serialized state
        self._stateful = True  # whether clients returned states in the last call
        self._replies: dict[str, Message] = {}  # by the id of the message they answer
        self._results: list[Answer | Failure] = []

    def send_groups(self, groups: Sequence[JobGroup]) -> None:
        shared: dict[int, Any] = {}
        for place, group in enumerate(groups):
            kind = wire.TRAIN if group.jobs[0].train else wire.EVALUATE
            # a single client goes where its data is; groups are spread, and a client is in the same one every time
            home = group.jobs[0].client if len(group.jobs) == 1 else place
            self._queue(group, group.clients, kind, shared, home)
        self._dispatch()

    def receive_results(self, timeout: float) -> list[Answer | Failure]:
        self._collect(lambda: bool(self._results), timeout)
        found, self._results = self._results, []
        return found

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        shared: dict[int, Any] = {}  # address of a buffer -> its reference in the object store
        ids = []
        for message in messages:
            ids.append(self._assign_id(message))
            client = client_of(message)
            self._queue(message, [client], message.metadata.message_type, shared, client)
        self._dispatch()
        return ids

    def _queue(self, work: Work, clients: list[int], kind: str, shared: dict[int, Any], home: int) -> None:
        head, buffers = serialize(work)
        job = Queued(work, clients, kind, head, [share(b, shared) for b in buffers], shared, home % len(self._slots))
        self._slots[job.home].queue.append(job)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        self._collect(lambda: any(key in wanted for key in self._replies), 0.0)
        return self._take_replies(wanted)

    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        self._collect(lambda: any(key in message_ids for key in self._replies), timeout)
        found = self._take_replies(message_ids)
        for late in self._replies.values():
            client, kind = late.metadata.src_node_id - FIRST_NODE, late.metadata.message_type
            log.info("client %d: a late reply to a %s message is discarded", client, kind, extra={"client": client})
        self._replies.clear()
        return found

    def client_states(self) -> dict[int, ClientState]:
        waiting = list(self._states.values())
        while waiting:  # a state that was in a lost part of the object store never comes
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=CHECK_SECONDS)
            self._watchdog.check()
        return {client: deserialize(*ray.get(ref)) for client, ref in sorted(self._states.items())}

    def restore(self, client_states: dict[int, ClientState]) -> None:
        self._states = {client: ray.put(serialize(state)) for client, state in client_states.items()}

    def close(self) -> None:
        for slot in self._slots if not self._watchdog.lost else ():  # without Ray it would wait for minutes
            self._workers.release(slot.actor, idle=slot.idle)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._joined or (self._watchdog.lost and started_here()):
            leave()
        self._last_words.cancel()

    # From the queues to the workers

    def _dispatch(self) -> None:
        """Hands queued jobs to workers with room. An idle worker with an empty queue takes jobs of the longest one."""
        for slot in self._slots:
            while slot.has_room():
                source = slot if slot.queue or slot.calls else max(self._slots, key=lambda s: len(s.queue))
                if not (jobs := self._next_jobs(slot, source.queue)):
                    break
                self._submit(slot, jobs)
            if (call := slot.current) is not None and call.began is None:
                call.began = time.monotonic()

    def _next_jobs(self, slot: Slot, queue: deque[Queued]) -> list[Queued]:
        """Takes the jobs of the next call from a queue. A job that was sent before gets a worker to itself."""
        if not queue or (queue[0].attempts and slot.calls):
            return []
        first = queue.popleft()
        seconds = self._seconds.get(first.kind, BUNDLE_SECONDS) * len(first.clients)
        room = min(BUNDLE, int(BUNDLE_SECONDS / max(seconds, 1e-6)), 1 + len(queue) // CALLS_PER_WORKER)
        jobs = [first]
        while len(jobs) < room and not first.attempts and queue and not queue[0].attempts:
            jobs.append(queue.popleft())
        return jobs

    def _submit(self, slot: Slot, jobs: list[Queued]) -> None:
        arguments: dict[int, tuple[int, Any]] = {}  # by identity: what several jobs share is passed once

        def place(argument: Any) -> int:
            return arguments.setdefault(id(argument), (len(arguments), argument))[0]

        heads = []
        for job in jobs:
            job.attempts += 1
            states = [self._states.get(client) for client in job.clients]
            places = [None if state is None else place(state) for state in states]
            heads.append((job.head, [place(b) for b in job.buffers], places))
        values = [argument for _, argument in arguments.values()]
        if self._stateful:  # an object of its own for every state costs Ray more than a small job
            count = 1 + sum(len(job.clients) for job in jobs)
            results, *kept = slot.actor.handle.options(num_returns=count).remote(heads, True, *values)
            slot.calls[results] = Call(jobs, kept)
        else:
            slot.calls[slot.actor.handle.remote(heads, False, *values)] = Call(jobs, None)

    # From the workers to the replies

    def _collect(self, done: Callable[[], bool], timeout: float) -> None:
        """Waits until `done`, no call is left, or `timeout` seconds are over."""
        deadline = time.monotonic() + timeout
        while not done() and any(slot.calls for slot in self._slots):
            left = deadline - time.monotonic()
            self._finish_calls(max(0.0, left))
            if left <= 0:
                return

    def _take_replies(self, wanted: Collection[str]) -> list[Message]:
        return [self._replies.pop(key) for key in [key for key in self._replies if key in wanted]]

    def _finish_calls(self, timeout: float) -> None:
        """Waits until a call is done or overdue, at most `timeout` seconds; handles all such calls, dispatches jobs."""
        slot_of = {replies: slot for slot in self._slots for replies in slot.calls}
        overdue = min(map(self._overdue_at, self._slots)) - time.monotonic()
        wait = min(timeout, max(0.0, overdue), CHECK_SECONDS)
        first, rest = ray.wait(list(slot_of), num_returns=1, timeout=wait, fetch_local=True)
        self._watchdog.check()
        more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        for replies in [*first, *more]:
            slot = slot_of[replies]
            if replies in slot.calls:  # not removed with a dead worker
                self._finish(slot, replies)
        self._dispatch()
        for slot in self._slots:
            if self._overdue_at(slot) <= time.monotonic():
                self._stop_overdue(slot)
        self._dispatch()

    def _finish(self, slot: Slot, replies: Any) -> None:
        kept = slot.calls[replies].states
        try:
            results = ray.get(replies)
            if self._nodes_may_be_lost and kept:  # and with them the states in their part of the object store
                kept = [None if state is None else ray.put(state) for state in ray.get(kept)]
        except RayTaskError as error:
            jobs = slot.calls.pop(replies).jobs
            for job in jobs:
                if len(jobs) == 1:
                    self._fail(job, f"{type(error).__name__}: {error}")
                else:
                    self._slots[job.home].queue.appendleft(job)
        except RayError as error:
            self._watchdog.check(at_once=True)
            self._replace_dead_worker(slot, error)
        else:
            call = slot.calls.pop(replies)
            apart = iter(kept or ())
            for job, (result, states, seconds) in zip(call.jobs, results, strict=True):
                for client, state in zip(job.clients, states, strict=True):
                    reference = None if call.states is None else next(apart)
                    if state:
                        self._states[client] = ray.put(state) if reference is None else reference
                self._seconds[job.kind] = seconds
                self._take(job, deserialize(*result))
            if call.jobs:
                self._stateful = any(state for _, states, _ in results for state in states)

    def _take(self, job: Queued, result: Any) -> None:
        """Keeps a reply or a result until it is asked for."""
        if isinstance(job.work, Message):
            self._replies[job.work.metadata.message_id] = result
            return
        self._results += [result_of(*each) for each in zip(job.work.jobs, result, strict=True)]

    def _overdue_at(self, slot: Slot) -> float:
        """When the call a worker is at has lasted too long, on the monotonic clock."""
        call = slot.current
        if call is None or call.began is None:
            return inf
        return call.began + (self.config.timeout if call.jobs else START_SECONDS)

    def _stop_overdue(self, slot: Slot) -> None:
        """Ends a worker that exceeded the time limit. A client that was alone in its call has failed; several are
        served again, one at a time. The jobs of the next call had not begun and are queued again."""
        call, *later = slot.calls.values()
        if not call.jobs:
            missing = f"a Ray worker did not start within {START_SECONDS:.0f} s: is a machine or a GPU missing?"
            if all(other.starting for other in self._slots):
                raise FedsimError(missing)
            log.warning("%s The other workers do its jobs", missing)
            call.began = None  # it may come later
            return
        if len(call.jobs) == 1 and len(call.jobs[0].clients) == 1:
            self._fail(call.jobs.pop(), self.too_long)
        call.jobs[:] = [single for job in call.jobs for single in job.singly()]
        for job in (job for unbegun in later for job in unbegun.jobs):
            job.attempts -= 1
        ray.kill(slot.actor)
        self._start_worker(slot)

    def _replace_dead_worker(self, slot: Slot, error: RayError) -> None:
        """Starts a new worker for the jobs of a dead one; a job that had its last attempt has failed."""
        for call in slot.calls.values():
            for job in [job for job in call.jobs if job.attempts >= ATTEMPTS]:
                call.jobs.remove(job)
                self._fail(job, f"its worker died {ATTEMPTS} times: {type(error).__name__}")
        self._start_worker(slot)

    def _start_worker(self, slot: Slot) -> None:
        """Puts a new worker into the slot; the jobs of the one before it are queued again."""
        lost = [job for call in slot.calls.values() for job in call.jobs]
        slot.queue.extendleft(reversed(lost))
        slot.actor, ready = self._workers.start()
        slot.calls = {ready: Call([], began=time.monotonic())}

    def _fail(self, job: Queued, reason: str) -> None:
        if isinstance(job.work, Message):
            self._take(job, Message(Error(CRASHED, reason), reply_to=job.work))
        else:
            self._take(job, [reason for _ in job.clients])
