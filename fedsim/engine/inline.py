"""The inline engine: every client runs in this process, one after the other or `workers` at a time, each in a thread."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from flwr.app import Error, Message

from fedsim.client.groups import JobGroup, Result
from fedsim.client.jobs import forget, run_group
from fedsim.config import RunConfig
from fedsim.engine.base import CRASHED, LocalGrid, client_of, execute
from fedsim.payload import Answer, Array, ClientState, Downlink, Failure, Job
from fedsim.weights import Weights


class Snapshot:
    """Jobs with read-only copies of what they carry; an array that several jobs share is copied once."""

    def __init__(self) -> None:
        self._copies: dict[
            int, tuple[Any, Any]
        ] = {}  # by identity; holding the original keeps its id from being reused

    def of(self, job: Job) -> Job:
        down = job.down
        weights = {name: self._copy(value, frozen_weights) for name, value in down.weights.items()}
        arrays = {name: self._copy(value, frozen) for name, value in down.arrays.items()}
        return job.with_down(Downlink(weights, arrays, down.numbers, down.shared))

    def _copy(self, value: Any, copy: Callable[[Any], Any]) -> Any:
        if id(value) not in self._copies:
            self._copies[id(value)] = value, copy(value)
        return self._copies[id(value)][1]


def frozen_weights(weights: Weights) -> Weights:
    return Weights(frozen(weights.parameters), frozen(weights.buffers))


def frozen(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class InlineGrid(LocalGrid):
    """Queues jobs and messages; a client works on one when its result is asked for."""

    engine = "inline"

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        forget()  # of an earlier run in this process, whose files may have changed
        self._states: dict[int, ClientState] = {}
        self._messages: dict[str, Message] = {}
        self._groups: deque[JobGroup] = deque()
        self._running: dict[Future[Sequence[Result]], JobGroup] = {}
        self._threads = ThreadPoolExecutor(config.workers) if config.workers > 1 else None
        self._most = (
            2 * config.workers if self._threads else 1
        )  # groups: threads shall find the next one when they are done

    def send_groups(self, groups: Sequence[JobGroup]) -> None:
        snapshot = Snapshot()  # a strategy may change its arrays in place before a client works on its job
        self._groups.extend([replace(group, jobs=[snapshot.of(job) for job in group.jobs]) for group in groups])

    def receive_results(self, timeout: float) -> list[Answer | Failure]:
        """Works on the next groups of jobs until one is done, however long it takes. A job that fails leaves its client's
        state as it was."""
        while self._groups and len(self._running) < self._most and self._is_free(self._groups[0]):
            group = self._groups.popleft()
            self._running[self._start(group)] = group
        wait(self._running, return_when=FIRST_COMPLETED)
        done = [future for future in self._running if future.done()]
        return [result for future in done for result in self._finish(self._running.pop(future), future.result())]

    def _is_free(self, group: JobGroup) -> bool:
        """Whether none of its clients is at work: the jobs of a client are done one after the other."""
        busy = {job.client for running in self._running.values() for job in running.jobs}
        return busy.isdisjoint(job.client for job in group.jobs)

    def _start(self, group: JobGroup) -> Future[Sequence[Result]]:
        states = [self._states.get(job.client, ClientState()) for job in group.jobs]
        if self._threads is not None:
            return self._threads.submit(self._work_on, group, states)
        done: Future[Sequence[Result]] = Future()
        done.set_result(self._work_on(group, states))
        return done

    def _work_on(self, group: JobGroup, states: Sequence[ClientState]) -> Sequence[Result]:
        began = time.monotonic()
        results = run_group(group, self.config, states)
        if time.monotonic() - began > self.config.timeout * len(group.jobs):
            return [(Failure(job, self.too_long), None) for job in group.jobs]
        return results

    def _finish(self, group: JobGroup, results: Sequence[Result]) -> list[Answer | Failure]:
        self._states |= {job.client: s for job, (_, s) in zip(group.jobs, results, strict=True) if s is not None}
        return [result for result, _ in results]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = {self._assign_id(message): message for message in messages}
        self._messages |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.await_messages(list(message_ids), 0.0)

    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        """Works on the next of these messages, however long it takes, and returns its reply."""
        first = next((key for key in self._messages if key in message_ids), None)
        if first is None:
            return []
        message, began = self._messages.pop(first), time.monotonic()
        client = client_of(message)
        reply, state = execute(message, self.config, self._states.get(client, ClientState()))
        if time.monotonic() - began > self.config.timeout:
            return [Message(Error(CRASHED, self.too_long), reply_to=message)]
        if state is not None:
            self._states[client] = state
        return [reply]

    def client_states(self) -> dict[int, ClientState]:
        return dict(sorted(self._states.items()))

    def restore(self, client_states: dict[int, ClientState]) -> None:
        self._states = dict(client_states)

    def close(self) -> None:
        self._messages.clear()
        self._groups.clear()
        if self._threads is not None:
            self._threads.shutdown()
