"""Finds jobs that were lost on the way. Flower hands out a message once: if the network breaks then, nobody has it.

A SuperNode takes its messages in the order in which they were sent, one at a time, and hands in each answer before it takes
the next message. So if a node gives a sign of life for which it was asked after a job, that job is done or lost.
"""

import time

from flwr.serverapp import Grid

from fedsim import wire
from fedsim.courier import Courier, push, replies_to

PATIENCE = 10.0  # seconds; a node is asked about a job that takes longer, and twice as long as any before


class Inquiry:
    """Asks nodes that have been silent for long, and has the courier send again what is lost."""

    def __init__(self, grid: Grid, courier: Courier, timeout: float) -> None:
        self._grid, self._courier, self._timeout = grid, courier, timeout
        self._asked: dict[str, str] = {}  # questions out -> the message of the job that each is about
        self._due: dict[str, float] = {}  # the age of a job at which to ask again
        self._suspects: set[str] = set()  # the node gave a sign of life; the answer may have come just before it

    @property
    def urgent(self) -> bool:
        """Whether an answer may be there soon."""
        return bool(self._asked or self._suspects)

    def look(self, clients: set[int]) -> bool:
        """Sees to the jobs of these clients; True: one is lost for good. The courier looks for answers between two calls; if
        it did not, a job may be done twice for nothing."""
        jobs = self._courier.open
        refused = self._courier.repeat(sorted(self._suspects & jobs.keys()))
        self._asked = {question: job for question, job in self._asked.items() if job in jobs}
        self._due = {job: age for job, age in self._due.items() if job in jobs}
        replies = replies_to(self._grid, self._asked, self._timeout) if self._asked else []
        self._suspects = {self._asked.pop(reply.metadata.reply_to_message_id) for reply in replies}
        self._ask(clients)
        return refused

    def _ask(self, clients: set[int]) -> None:
        now, patience = time.time(), max(PATIENCE, 2 * self._courier.slowest)
        late = [
            key
            for key, order in self._courier.open.items()
            if order.job.client in clients and now - order.sent >= self._due.get(key, patience)
        ]
        questions = [wire.pack_query(self._courier.open[key].node, wire.ALIVE, self._timeout) for key in late]
        if questions:
            self._asked |= {
                q: key for q, key in zip(push(self._grid, questions, self._timeout), late, strict=True) if q
            }
            self._due |= {key: 2 * (now - self._courier.open[key].sent) for key in late}
