"""Which clients are there, on a grid whose nodes come and go: notices restarted nodes, lost jobs, and returned clients.

A client is back when a node answers the roll call as that client, with the same data. A node with a key keeps its id
over a restart; a node without one is a new node, which must be asked which client it is.
"""

import logging
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from math import inf

from flwr.app import Message
from flwr.serverapp import Grid

from fedsim.config import RunConfig
from fedsim.errors import WireError
from fedsim.payload import Downlink, Failure, Job
from fedsim.server.fleet import Client, Fleet
from fedsim.server.roll_call import client_of
from fedsim.transport import wire
from fedsim.transport.grid import call_superlink, pull, push
from fedsim.transport.messenger import Messenger

log = logging.getLogger(__name__)
CHECK_SECONDS, IDLE_CHECK_SECONDS = 1.0, 10.0  # between two checks while something is missing, and while nothing is
PATIENCE = 10.0  # seconds; a node is asked about a job that takes longer than this and than twice the slowest before


class Liveness:
    """Checks the nodes from time to time without waiting, and updates the fleet and the messenger."""

    def __init__(self, grid: Grid, fleet: Fleet, messenger: Messenger, config: RunConfig) -> None:
        self._grid, self._fleet, self._messenger, self._timeout = grid, fleet, messenger, config.timeout
        self._config, timeout = config, config.timeout
        self._names: Mapping[int, str] = {}  # that the keys of connected nodes are registered under
        self._queries: dict[str, int] = {}  # roll calls in flight: message id -> node
        self._present: dict[int, Client] = {}  # nodes that answered for a client that was not lost
        self._refused: set[int] = set()  # nodes that may not take part as long as they stay connected
        self._lost_jobs = LostJobs(grid, messenger, timeout)
        self._last_check = -inf
        self._activated: dict[int, float] = {}  # node -> when it started, as the last check saw it
        self.refusals: list[Failure] = []  # clients that returned and may not take part; the loop empties it

    @property
    def lost(self) -> list[int]:
        """Clients whose nodes are gone."""
        return [client for client, until in self._fleet.absent_until.items() if until == inf]

    def check(self) -> bool:
        """Returns whether a job was found to have failed; returns False at once if the last check was a moment ago."""
        urgent = self.lost or self._lost_jobs.suspected
        if time.monotonic() - self._last_check < (CHECK_SECONDS if urgent else IDLE_CHECK_SECONDS):
            return False
        nodes = call_superlink(self._grid.get_nodes, self._timeout)
        online = {node.node_id: _seconds(node.last_activated_at) for node in nodes}
        self._names = {node.node_id: node.name for node in nodes}
        again = {node: at for node, at in online.items() if self._activated.get(node, at) != at}
        restarted = self._messenger.fail_restarted(again, self._last_check)
        self._activated |= online
        if self.lost:
            self._receive_answers()
            self._query_unknown_nodes(online)
        refused = self._lost_jobs.check()
        self._last_check = time.monotonic()
        return restarted or refused

    def wait_for_return(self) -> bool:
        """Waits until a lost client is back; returns False if none was lost or none is back within the time limit."""
        lost, deadline = self.lost, time.monotonic() + self._timeout
        if not lost:
            return False
        log.warning("no client is left: waiting up to %.0f s for one to return", self._timeout)
        while self.lost == lost and time.monotonic() < deadline:
            self.check()
            time.sleep(CHECK_SECONDS / 4)
        return self.lost != lost

    def _query_unknown_nodes(self, online: Collection[int]) -> None:
        """Sends a roll call to every connected node that may be a lost client."""
        self._refused.intersection_update(online)
        lost = set(self.lost)
        at_work = {c.node for c in self._fleet.everyone if c.id not in lost}
        others = {node for node, client in self._present.items() if client.id not in lost}
        unknown = sorted(set(online) - at_work - others - self._refused - set(self._queries.values()))
        queries = [wire.pack_query(node, wire.ROLL_CALL, self._timeout) for node in unknown]
        if queries:
            ids = push(self._grid, queries, self._timeout)
            self._queries |= {key: node for key, node in zip(ids, unknown, strict=True) if key}

    def _receive_answers(self) -> None:
        for reply in pull(self._grid, self._queries, self._timeout) if self._queries else []:
            node = self._queries.pop(reply.metadata.reply_to_message_id)
            if wire.is_offline(reply):
                continue
            if reply.has_error():
                self._refuse(node, f"node {node} cannot take part: {wire.reason_of(reply)}")
            else:
                self._identify(node, reply)

    def _identify(self, node: int, reply: Message) -> None:
        """Readmits the client that a node says it is, if it is lost, and the node has the same name and data as before."""
        try:
            found = client_of(node, reply, self._config, self._names.get(node, ""))
        except WireError as problem:
            self._refuse(node, str(problem))
            return
        before = self._fleet[found.id]
        if found.id not in self.lost:
            self._present[node] = found
        elif before.name != found.name:
            who, owner = (client.name or "without a registered key" for client in (found, before))
            self._refuse(
                node, f"node {node} ({who}) says it is client {found.id}, which is node {before.node} ({owner})"
            )
        elif other := before.differs(found):
            self._refuse(node, f"client {found.id} came back with other data and stays out: {other}", found.id)
        else:
            self._fleet.rejoin(found)
            log.info("client %d is back", found.id, extra={"client": found.id})

    def _refuse(self, node: int, reason: str, client: int | None = None) -> None:
        log.warning("%s", reason, extra={} if client is None else {"client": client})
        self._refused.add(node)
        if client is not None:
            self.refusals.append(Failure(Job(client, 0, Downlink(), train=False), reason, offline=True))


class LostJobs:
    """Finds jobs whose message or answer was lost on the way, and has the messenger send them again.

    Flower delivers a message once. A SuperNode takes its messages one at a time, in the order in which they were sent,
    and hands in each answer before it takes the next message. So when a node answers a query (`wire.ALIVE`) that was
    sent after a job, the job is done or lost.
    """

    def __init__(self, grid: Grid, messenger: Messenger, timeout: float) -> None:
        self._grid, self._messenger, self._timeout = grid, messenger, timeout
        self._queries: dict[str, str] = {}  # queries in flight: message id -> message id of the job
        self._due: dict[str, float] = {}  # message id of a job -> its age at the next query
        self._suspects: set[str] = set()  # jobs whose query was answered; their answers may have come just before it

    @property
    def suspected(self) -> bool:
        """Whether the next check may find a lost job."""
        return bool(self._queries or self._suspects)

    def check(self) -> bool:
        """Treats the jobs of clients that can repeat them; returns whether the grid refused to send one again.

        The messenger must look for answers between two checks; otherwise a job may be done twice.
        """
        jobs = self._messenger.in_flight
        refused = self._messenger.resend(sorted(self._suspects & jobs.keys()))
        self._queries = {query: job for query, job in self._queries.items() if job in jobs}
        self._due = {job: age for job, age in self._due.items() if job in jobs}
        replies = pull(self._grid, self._queries, self._timeout) if self._queries else []
        self._suspects = {self._queries.pop(reply.metadata.reply_to_message_id) for reply in replies}
        self._query_slow_nodes()
        return refused

    def _query_slow_nodes(self) -> None:
        now, patience = time.monotonic(), max(PATIENCE, 2 * self._messenger.slowest)
        jobs = self._messenger.in_flight
        late = [
            key
            for key, sent in jobs.items()
            if self._messenger.repeats(sent.job.client) and now - sent.sent >= self._due.get(key, patience)
        ]
        queries = [wire.pack_query(jobs[key].node, wire.ALIVE, self._timeout) for key in late]
        if queries:
            ids = push(self._grid, queries, self._timeout)
            self._queries |= {query: key for query, key in zip(ids, late, strict=True) if query}
            self._due |= {key: 2 * (now - jobs[key].sent) for key in late}


def _seconds(when: str) -> float:
    """A time as Flower writes it, in seconds since 1970; 0 if the grid does not tell it."""
    return datetime.fromisoformat(when).timestamp() if when else 0.0
