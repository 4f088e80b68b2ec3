"""Carries messages over any Flower grid: push, then pull until the replies are there."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim import wire
from fedsim.errors import FedsimError
from fedsim.payload import Answer, Failure, Job

FIRST_POLL, LAST_POLL = 0.005, 0.25  # seconds between two looks at a grid that can only be polled


@runtime_checkable
class AwaitingGrid(Protocol):
    """A grid that can wait by itself; ours can, Flower's must be polled."""

    def await_messages(self, message_ids: Collection[str], timeout: float) -> Iterable[Message]:
        """Block until at least one reply is there, or the time is over."""


class Courier:
    """Jobs out, answers in; knows which job every reply belongs to."""

    def __init__(
        self, grid: Grid, nodes: Mapping[int, int], classes: int, timeout: float, injects: bool = False
    ) -> None:
        self._grid, self._nodes, self._classes, self._timeout, self._injects = grid, nodes, classes, timeout, injects
        self._open: dict[str, Job] = {}
        self._deadlines: dict[str, float] = {}
        self.expects: Mapping[str, int] = {}
        self.spend: Callable[[float], None] = lambda seconds: (
            None
        )  # told what packing, sending, fetching, unpacking took

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        """Dispatch; what the grid would not take comes back as failures at once."""
        began, encoder = time.perf_counter(), wire.Encoder()
        messages = [
            wire.pack_job(j, self._nodes[j.client], self._classes, self._timeout, encoder, self._injects) for j in jobs
        ]
        ids = push(self._grid, messages)
        refused = []
        for job, key in zip(jobs, ids, strict=True):
            if key:
                self._open[key] = job
                self._deadlines[key] = time.monotonic() + self._timeout
            else:
                refused.append(Failure(job, "the grid refused its message", offline=True))
        self.spend(time.perf_counter() - began)
        return refused

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Every reply that is there; waits for at least one, at most `timeout` seconds."""
        limit = min(self._deadlines.values(), default=0.0)
        wait = max(0.0, limit - time.monotonic())
        replies, fetching = wait_for(self._grid, self._open, wait if timeout is None else min(wait, timeout))
        began, found = time.perf_counter(), []
        for reply in replies:
            key = reply.metadata.reply_to_message_id
            found.append(wire.unpack_answer(reply, self._close(key), self.expects))
        self.spend(fetching + time.perf_counter() - began)
        now = time.monotonic()
        for key in [k for k, deadline in self._deadlines.items() if deadline <= now]:
            job = self._close(key)
            found.append(Failure(job, f"no answer within {self._timeout:.0f} s", offline=True))
        return found

    def _close(self, key: str) -> Job:
        self._deadlines.pop(key)
        return self._open.pop(key)


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> dict[int, Message]:
    """Send and wait for all; replies by node. An error or a missing reply raises."""
    nodes = dict(zip(push(grid, messages), (m.metadata.dst_node_id for m in messages), strict=True))
    replies: dict[int, Message] = {}
    deadline = time.monotonic() + timeout
    while nodes and (left := deadline - time.monotonic()) > 0:
        for reply in wait_for(grid, nodes, left)[0]:
            node = nodes.pop(reply.metadata.reply_to_message_id)
            if reply.has_error():
                raise FedsimError(f"node {node} answered with an error: {wire.reason_of(reply)}")
            replies[node] = reply
    if nodes:
        raise FedsimError(f"{len(nodes)} of {len(messages)} nodes did not answer within {timeout:.0f} s")
    return replies


def push(grid: Grid, messages: Sequence[Message]) -> list[str]:
    """Message ids in order; an empty id marks a message that was not taken."""
    ids = [key or "" for key in grid.push_messages(list(messages))]
    if len(ids) != len(messages):
        raise FedsimError(f"the grid took only {len(ids)} of {len(messages)} messages and does not say which")
    return ids


def wait_for(grid: Grid, ids: Collection[str], timeout: float) -> tuple[list[Message], float]:
    """At least one reply to these messages, or none if the time is over; and the seconds it took to fetch them, where
    that can be told from waiting."""
    if isinstance(grid, AwaitingGrid):
        return list(grid.await_messages(ids, timeout)), 0.0
    deadline, pause = time.monotonic() + timeout, FIRST_POLL
    while True:
        began = time.monotonic()
        replies = list(grid.pull_messages(list(ids)))
        if replies or time.monotonic() >= deadline:
            return replies, time.monotonic() - began
        time.sleep(pause)
        pause = min(2 * pause, LAST_POLL)
