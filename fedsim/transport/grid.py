"""Messages over any Flower grid: push, then wait for the replies. fedsim's own grids can wait, Flower's must be polled.

Flower's calls to a SuperLink that is unreachable try again for ever and in silence. Here they are logged and limited.
"""

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from concurrent.futures import Future
from math import inf
from threading import Thread
from typing import Protocol, TypeVar, runtime_checkable

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim.errors import FedsimError
from fedsim.flower.grid import ObjectPushError
from fedsim.transport import wire
from fedsim.transport.polling import Polling

T = TypeVar("T")
log = logging.getLogger(__name__)
FIRST_POLL, LAST_POLL = 0.05, 1.0  # seconds between two polls of a grid
SILENCE = 5.0  # seconds without an answer from the SuperLink after which the user is told


@runtime_checkable
class AwaitingGrid(Protocol):
    """One of fedsim's own grids: it can wait, and answers every message, if need be with an error (see engine.base)."""

    def await_messages(self, message_ids: Collection[str], timeout: float) -> Iterable[Message]:
        """Blocks until there is at least one reply to these messages, or `timeout` seconds are over."""


def time_limit(grid: Grid, timeout: float) -> float:
    """Seconds from sending after which no reply is expected any more.

    Flower does not tell when a node begins to work on a message, so on its grids the time in a queue counts. fedsim's
    own grids keep the limit themselves, from the moment the work begins.
    """
    return inf if isinstance(grid, AwaitingGrid) else timeout


def push(grid: Grid, messages: Sequence[Message], timeout: float) -> list[str]:
    """Sends messages; returns their ids in order, and an empty id for a message that the grid refused."""
    ids = _call(grid, lambda: _push_with_retries(grid, messages, timeout), timeout)
    if len(ids) != len(messages):
        raise FedsimError(f"the grid took only {len(ids)} of {len(messages)} messages and does not say which")
    return [key or "" for key in ids]


def pull(grid: Grid, ids: Collection[str], timeout: float) -> list[Message]:
    """The replies to these messages that have arrived; `timeout` limits the call itself."""
    return known_replies(_call(grid, lambda: list(grid.pull_messages(list(ids))), timeout), ids)


def known_replies(replies: Iterable[Message], ids: Container[str]) -> list[Message]:
    """The first reply to each of these messages. Others are left out and named: nobody asked for them."""
    found = dict[str, Message]()
    for reply in replies:
        key = reply.metadata.reply_to_message_id
        if key in ids and key not in found:
            found[key] = reply
        else:
            what = "a second reply" if key in found else "a reply to a message that was not sent, or not by this run,"
            log.warning("%s from node %d is left out", what, reply.metadata.src_node_id)
    return list(found.values())


def await_replies(
    grid: Grid, ids: Collection[str], wait: float, timeout: float, on_poll: Callable[[], bool] = lambda: False
) -> tuple[list[Message], float]:
    """Waits for at least one reply to these messages, at most `wait` seconds, or until `on_poll` returns True.

    Returns the replies and the seconds it took to fetch them (0 where fetching cannot be told from waiting).
    """
    if isinstance(grid, AwaitingGrid):
        return known_replies(grid.await_messages(ids, wait), ids), 0.0
    deadline, polling = time.monotonic() + wait, Polling(FIRST_POLL, LAST_POLL)
    while True:
        began = time.monotonic()
        replies = pull(grid, ids, timeout)
        if replies or time.monotonic() >= deadline or on_poll():
            return replies, time.monotonic() - began
        polling.sleep()


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float, all_must_answer: bool = True
) -> dict[int, Message]:
    """Sends messages to different nodes and waits for the replies; returns them by node.

    Raises FedsimError if a node answers with an error or not at all. With all_must_answer=False a node that is offline
    is left out instead.
    """
    nodes = dict(zip(push(grid, messages, timeout), (m.metadata.dst_node_id for m in messages), strict=True))
    replies: dict[int, Message] = {}
    deadline = time.monotonic() + time_limit(grid, timeout)
    while nodes and (left := deadline - time.monotonic()) > 0:
        for reply in await_replies(grid, nodes, left, timeout)[0]:
            node = nodes.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                replies[node] = reply
            elif all_must_answer or not wire.is_offline(reply):
                raise FedsimError(f"node {node} answered with an error: {wire.reason_of(reply)}")
    if nodes:
        raise FedsimError(f"{len(nodes)} of {len(messages)} nodes did not answer within {timeout:.0f} s")
    return replies


def call_superlink(call: Callable[[], T], timeout: float) -> T:
    """Returns what `call` returns. Logs a long silence and its end; raises FedsimError after `timeout` seconds."""
    answer: Future[T] = Future()
    began = time.monotonic()
    Thread(target=_run, args=(call, answer), daemon=True).start()
    try:
        return answer.result(min(SILENCE, timeout))
    except TimeoutError:
        if answer.done():  # the call itself ran into a time limit
            raise
    log.warning("no answer from the SuperLink for %.0f s: trying again for %.0f s", SILENCE, timeout)
    try:
        result = answer.result(max(0.0, began + timeout - time.monotonic()))
    except TimeoutError:
        if answer.done():
            raise
        raise FedsimError(f"the SuperLink did not answer for {timeout:.0f} s") from None
    log.warning("the SuperLink answers again, after %.0f s", time.monotonic() - began)
    return result


def _run(call: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


def _call(grid: Grid, call: Callable[[], T], timeout: float) -> T:
    """fedsim's own grids are called directly: no SuperLink is involved."""
    return call() if isinstance(grid, AwaitingGrid) else call_superlink(call, timeout)


def _push_with_retries(grid: Grid, messages: Sequence[Message], timeout: float) -> list[str]:
    """A SuperLink that is restarted during a push refuses the rest of the message. It recognizes a message that is
    pushed twice, so the push is repeated."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return list(grid.push_messages(list(messages)))
        except ObjectPushError:
            if time.monotonic() > deadline:
                raise
        time.sleep(LAST_POLL)
