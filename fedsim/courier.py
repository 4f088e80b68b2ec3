"""Carries messages over any Flower grid: push, then pull until the replies are there."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from fedsim import wire
from fedsim.contact import reach
from fedsim.errors import FedsimError
from fedsim.pauses import Pauses
from fedsim.payload import Answer, Failure, Job, Run

T = TypeVar("T")
FIRST_POLL, LAST_POLL = 0.05, 1.0  # seconds between two looks at a grid that can only be polled


@runtime_checkable
class AwaitingGrid(Protocol):
    """A grid that can wait by itself; ours can, Flower's must be polled."""

    def await_messages(self, message_ids: Collection[str], timeout: float) -> Iterable[Message]:
        """Block until at least one reply is there, or the time is over."""


@dataclass(frozen=True)
class Order:
    """A job that is out."""

    job: Job
    node: int
    sent: float  # seconds since 1970
    deadline: float  # on the monotonic clock


class Courier:
    """Jobs out, answers in; knows which job every reply belongs to."""

    def __init__(
        self,
        grid: Grid,
        node_of: Callable[[int], int],
        run: Run,
        classes: int,
        timeout: float,
        injects: bool = False,
    ) -> None:
        self._grid, self._node_of, self.run = grid, node_of, run
        self._classes, self._timeout, self._injects = classes, timeout, injects
        self.open: dict[str, Order] = {}  # by message
        self.slowest = 0.0  # seconds that an answer took so far
        self._broken: list[Failure] = []
        self.expects: Mapping[str, int] = {}
        self.meanwhile: Callable[[], bool] = lambda: False  # called while waiting; True: there is something to tell
        self.spend: Callable[[float], None] = lambda seconds: (
            None
        )  # told what packing, sending, fetching, unpacking took

    def send(self, jobs: Sequence[Job], deadline: float | None = None) -> list[Failure]:
        """Dispatch; what the grid would not take comes back as failures at once. Each has its full time, unless told."""
        began, encoder = time.perf_counter(), wire.Encoder()
        messages = [
            wire.pack_job(
                job, self._node_of(job.client), self.run, self._classes, self._timeout, encoder, self._injects
            )
            for job in jobs
        ]
        ids, refused = push(self._grid, messages, self._timeout), []
        deadline = time.monotonic() + self._timeout if deadline is None else deadline
        for job, message, key in zip(jobs, messages, ids, strict=True):
            if key:
                about = message.metadata
                self.open[key] = Order(job, about.dst_node_id, about.created_at, deadline)
            else:
                refused.append(Failure(job, "the grid refused its message", offline=True))
        self.spend(time.perf_counter() - began)
        return refused

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Every reply that is there; waits for at least one, at most `timeout` seconds."""
        limit = min((order.deadline for order in self.open.values()), default=0.0)
        wait = max(0.0, limit - time.monotonic())
        wait = wait if timeout is None else min(wait, timeout)
        found: list[Answer | Failure] = []
        if self.open:
            replies, fetching = wait_for(self._grid, self.open, wait, self._timeout, self.meanwhile)
            began = time.perf_counter()
            for reply in replies:
                order = self.open.pop(reply.metadata.reply_to_message_id)
                self.slowest = max(self.slowest, time.time() - order.sent)
                found.append(wire.unpack_answer(reply, order.job, self.expects))
            self.spend(fetching + time.perf_counter() - began)
        now, late = time.monotonic(), f"no answer within {self._timeout:.0f} s"
        self._give_up([key for key, order in self.open.items() if order.deadline <= now], late)
        found += self._broken
        self._broken = []
        return found

    def break_off(self, activated: Mapping[int, float]) -> bool:
        """Gives up jobs whose nodes started after they were sent: Flower delivers a message only once."""
        gone = [key for key, order in self.open.items() if activated.get(order.node, 0.0) > order.sent]
        self._give_up(gone, "its node was restarted")
        return bool(gone)

    def repeat(self, lost: Iterable[str]) -> bool:
        """Sends jobs again whose messages are lost, without giving them more time; True: the grid refused one."""
        for order in map(self.open.pop, lost):
            print(f"client {order.job.client}: its job or its answer was lost on the way, sending it again", flush=True)
            self._broken += self.send([order.job], order.deadline)
        return bool(self._broken)

    def _give_up(self, keys: Iterable[str], reason: str) -> None:
        self._broken += [Failure(self.open.pop(key).job, reason, offline=True) for key in keys]


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float, all_must_answer: bool = True
) -> dict[int, Message]:
    """Send and wait; replies by node. An error or a missing reply raises, unless the node is gone and need not answer."""
    nodes = dict(zip(push(grid, messages, timeout), (m.metadata.dst_node_id for m in messages), strict=True))
    replies: dict[int, Message] = {}
    deadline = time.monotonic() + timeout
    while nodes and (left := deadline - time.monotonic()) > 0:
        for reply in wait_for(grid, nodes, left, timeout)[0]:
            node = nodes.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                replies[node] = reply
            elif all_must_answer or not wire.is_offline(reply):
                raise FedsimError(f"node {node} answered with an error: {wire.reason_of(reply)}")
    if nodes:
        raise FedsimError(f"{len(nodes)} of {len(messages)} nodes did not answer within {timeout:.0f} s")
    return replies


def push(grid: Grid, messages: Sequence[Message], timeout: float) -> list[str]:
    """Message ids in order; an empty id marks a message that was not taken."""
    taken = _reach(grid, lambda: _insist(grid, messages, timeout), timeout)
    if len(taken) != len(messages):
        raise FedsimError(f"the grid took only {len(taken)} of {len(messages)} messages and does not say which")
    return [key or "" for key in taken]


def replies_to(grid: Grid, ids: Collection[str], timeout: float) -> list[Message]:
    """The replies that are there now; `timeout` is for the SuperLink."""
    return _reach(grid, lambda: list(grid.pull_messages(list(ids))), timeout)


def wait_for(
    grid: Grid, ids: Collection[str], wait: float, timeout: float, meanwhile: Callable[[], bool] = lambda: False
) -> tuple[list[Message], float]:
    """At least one reply to these messages, or none if the wait is over or there is something else to tell; and the seconds
    it took to fetch them, where that can be told from waiting."""
    if isinstance(grid, AwaitingGrid):
        return list(grid.await_messages(ids, wait)), 0.0
    deadline, pauses = time.monotonic() + wait, Pauses(FIRST_POLL, LAST_POLL)
    while True:
        began = time.monotonic()
        replies = replies_to(grid, ids, timeout)
        if replies or time.monotonic() >= deadline or meanwhile():
            return replies, time.monotonic() - began
        pauses.sleep()


def _insist(grid: Grid, messages: Sequence[Message], timeout: float) -> list[str]:
    """A SuperLink that is restarted while it takes a message refuses the rest of it. It takes the same message again as
    the same, so pushing twice does no harm."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return list(grid.push_messages(list(messages)))
        except ObjectPushError:
            if time.monotonic() > deadline:
                raise
        time.sleep(LAST_POLL)


def _reach(grid: Grid, call: Callable[[], T], timeout: float) -> T:
    """Our own grids are in this process, or tell themselves what is wrong with their workers."""
    return call() if isinstance(grid, AwaitingGrid) else reach(call, timeout)
