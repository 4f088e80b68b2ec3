"""Who is there, on a grid whose nodes come and go: notices that a node was restarted, that a job was lost, and that a lost
client is back.

A client is back when a node answers the roll call as that client, with the same data. With a key a node keeps its id over a
restart; without one it is an unknown node that has to be asked who it is.
"""

import time
from collections.abc import Collection
from datetime import datetime
from math import inf

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim import wire
from fedsim.contact import reach
from fedsim.courier import Courier, push, replies_to
from fedsim.fleet import Client, Fleet, client_of
from fedsim.inquiry import Inquiry
from fedsim.payload import Downlink, Failure, Job

LOOK, SCAN = 1.0, 10.0  # seconds between two looks at the grid while somebody is missed, and while nobody is


class Attendance:
    """Looks from time to time, never waits (except `wait`), and tells the fleet and the courier what it saw."""

    def __init__(self, grid: Grid, fleet: Fleet, courier: Courier, timeout: float) -> None:
        self._grid, self._fleet, self._courier, self._timeout = grid, fleet, courier, timeout
        self._asked: dict[str, int] = {}  # roll calls out: message -> node
        self._answers: dict[int, Client] = {}  # nodes that answered for a client who was there
        self._refused: set[int] = set()  # nodes that may not take part as long as they stay connected
        self._inquiry = Inquiry(grid, courier, timeout)
        self._last = 0.0
        self.refusals: list[Failure] = []  # until somebody takes note of them

    @property
    def lost(self) -> list[int]:
        return [client for client, back in self._fleet.away.items() if back == inf]

    def look(self) -> bool:
        """Whether a job was found to be lost for good; most calls return at once: it is not yet time to look again."""
        if time.monotonic() - self._last < (LOOK if self.lost or self._inquiry.urgent else SCAN):
            return False
        online = {node.node_id: node.last_activated_at for node in reach(self._grid.get_nodes, self._timeout)}
        broken = self._courier.break_off({node: _seconds(when) for node, when in online.items()})
        if self.lost:
            self._listen()
            self._ask(online)
        # A job may only be sent again to a client that can do it again: from the memory it had before.
        refused = self._inquiry.look({c.id for c in self._fleet.clients if c.lasting})
        self._last = time.monotonic()
        return broken or refused

    def wait(self) -> bool:
        """Until somebody who was lost is back; False if nobody was lost, or nobody comes back in time."""
        lost, deadline = self.lost, time.monotonic() + self._timeout
        if not lost:
            return False
        print(f"no client is left: waiting up to {self._timeout:.0f} s for one to return", flush=True)
        while self.lost == lost and time.monotonic() < deadline:
            self.look()
            time.sleep(LOOK / 4)
        return self.lost != lost

    def _ask(self, online: Collection[int]) -> None:
        """Every node that is not at work in this run, unless it is known to be somebody who is there."""
        self._refused.intersection_update(online)
        lost = set(self.lost)
        present = {c.node for c in self._fleet.clients if c.id not in lost}
        others = {node for node, client in self._answers.items() if client.id not in lost}
        strangers = sorted(set(online) - present - others - self._refused - set(self._asked.values()))
        queries = [wire.pack_query(node, wire.ROLL_CALL, self._timeout) for node in strangers]
        if queries:
            ids = push(self._grid, queries, self._timeout)
            self._asked |= {key: node for key, node in zip(ids, strangers, strict=True) if key}

    def _listen(self) -> None:
        for reply in replies_to(self._grid, self._asked, self._timeout) if self._asked else []:
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            if wire.is_offline(reply):
                continue
            if reply.has_error():
                self._refuse(node, f"node {node} cannot take part: {wire.reason_of(reply)}")
            else:
                self._meet(node, reply)

    def _meet(self, node: int, reply: Message) -> None:
        found = client_of(node, reply)
        if found.id not in self._fleet:
            self._refuse(node, f"node {node} says it is client {found.id}, which this run does not have")
        elif found.id not in self.lost:
            self._answers[node] = found
        elif other := self._fleet[found.id].differs(found):
            self._refuse(node, f"client {found.id} came back with other data and stays out: {other}", found.id)
        else:
            self._fleet.welcome(found)
            print(f"client {found.id} is back", flush=True)

    def _refuse(self, node: int, reason: str, client: int | None = None) -> None:
        print(reason, flush=True)
        self._refused.add(node)
        if client is not None:
            self.refusals.append(Failure(Job(client, 0, Downlink(), train=False), reason, offline=True))


def _seconds(when: str) -> float:
    """A moment as Flower tells it, in seconds since 1970; a grid that does not tell gives an empty text."""
    return datetime.fromisoformat(when).timestamp() if when else 0.0
