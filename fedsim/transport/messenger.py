"""Sends jobs to clients and receives their answers, over any Flower grid."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.serverapp import Grid

from fedsim.filters import Filter, filtered_on_server
from fedsim.payload import Answer, Failure, Job, Role, RunIdentity
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.transport.grid import await_replies, push, time_limit

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentJob:
    """A job in flight."""

    job: Job
    node: int
    sent: float  # on the monotonic clock
    created: float  # seconds since 1970, by this machine's clock
    deadline: float  # on the monotonic clock; infinity where the grid keeps the time limit itself


class Messenger:
    """Knows which jobs are in flight, and which job a reply belongs to."""

    def __init__(
        self,
        grid: Grid,
        node_of: Callable[[int], int],
        run: RunIdentity,
        classes: int,
        timeout: float,
        injects: bool = False,
    ) -> None:
        self._grid, self._node_of, self.run = grid, node_of, run
        self._classes, self._timeout, self._injects = classes, timeout, injects
        self.in_flight: dict[str, SentJob] = {}  # by message id
        self.slowest = 0.0  # the most seconds that an answer took so far
        self._failures: list[Failure] = []  # to be returned by the next `receive`
        self.check = AnswerCheck()
        self.filters: Sequence[Filter] = ()
        self.roles: Mapping[str, Role] = {}  # that clients are told, see `filters.sent_roles`
        # Whether a client can repeat a job exactly, because it keeps the state that it had before.
        self.repeats: Callable[[int], bool] = lambda client: False
        # Called while waiting; True: `receive` has something to return.
        self.on_poll: Callable[[], bool] = lambda: False
        # Told the seconds of sending and fetching.
        self.on_communication: Callable[[float], None] = lambda seconds: None

    def send(self, jobs: Sequence[Job], deadline: float | None = None) -> list[Failure]:
        """Sends jobs; returns a failure for each that the grid refused. `deadline`: instead of the full time limit."""
        began, encoder = time.perf_counter(), wire.Encoder()
        ttl = self._timeout if deadline is None else max(1.0, min(self._timeout, deadline - time.monotonic()))
        messages = [
            wire.pack_job(
                job,
                self._node_of(job.client),
                self.run,
                self._classes,
                ttl,
                encoder,
                self._injects,
                self.roles,
            )
            for job in jobs
        ]
        ids, refused = push(self._grid, messages, self._timeout), []
        if deadline is None:
            deadline = time.monotonic() + time_limit(self._grid, self._timeout)
        for job, message, key in zip(jobs, messages, ids, strict=True):
            if key:
                metadata = message.metadata
                self.in_flight[key] = SentJob(
                    job, metadata.dst_node_id, time.monotonic(), metadata.created_at, deadline
                )
            else:
                refused.append(Failure(job, "the grid refused its message", offline=True))
        self.on_communication(time.perf_counter() - began)
        return refused

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Waits for at least one answer, at most `timeout` seconds; returns all that are there, and a failure for each
        job past its deadline."""
        limit = min((sent.deadline for sent in self.in_flight.values()), default=0.0)
        wait = max(0.0, limit - time.monotonic())
        wait = wait if timeout is None else min(wait, timeout)
        found: list[Answer | Failure] = []
        if self.in_flight:
            replies, fetching = await_replies(self._grid, self.in_flight, wait, self._timeout, self.on_poll)
            began = time.perf_counter()
            incomplete = [r.metadata.reply_to_message_id for r in replies if wire.is_unavailable(r)]
            again = {key for key in incomplete if self.repeats(self.in_flight[key].job.client)}
            self.resend(sorted(again))
            for reply in (r for r in replies if r.metadata.reply_to_message_id not in again):
                sent = self.in_flight.pop(reply.metadata.reply_to_message_id)
                self.slowest = max(self.slowest, time.monotonic() - sent.sent)
                answer = wire.unpack_answer(reply, sent.job, self.check)
                found.append(filtered_on_server(self.filters, answer, self.check.expects))
            self.on_communication(fetching + time.perf_counter() - began)
        now, late = time.monotonic(), f"no answer within {self._timeout:.0f} s of sending"
        self._fail([key for key, sent in self.in_flight.items() if sent.deadline <= now], late)
        found += self._failures
        self._failures = []
        return found

    def fail_restarted(self, restarted: Mapping[int, float], since: float) -> bool:
        """Fails jobs that were sent to these nodes before they started again: Flower delivers a message only once.

        `restarted`: node -> when (seconds since 1970), which was after `since` (monotonic clock). So clocks are compared for
        jobs only that were sent after that. Returns whether there was a job.
        """
        there = [(key, sent) for key, sent in self.in_flight.items() if sent.node in restarted]
        gone = [key for key, sent in there if sent.sent < since or sent.created < restarted[sent.node]]
        self._fail(gone, "its node was restarted")
        return bool(gone)

    def resend(self, message_ids: Iterable[str]) -> bool:
        """Sends jobs again whose messages were lost, with their old deadlines; returns whether the grid refused one. A job
        past its deadline is left: `receive` fails it."""
        now = time.monotonic()
        for sent in [self.in_flight.pop(key) for key in message_ids if self.in_flight[key].deadline > now]:
            log.warning(
                "client %d: its job or its answer was lost on the way, sending it again",
                sent.job.client,
                extra={"client": sent.job.client},
            )
            self._failures += self.send([sent.job], sent.deadline)
        return bool(self._failures)

    def _fail(self, message_ids: Iterable[str], reason: str) -> None:
        self._failures += [Failure(self.in_flight.pop(key).job, reason, offline=True) for key in message_ids]
