"""What waits for the workers of the Ray engine and what they are at: jobs in queues, and calls of several jobs."""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from flwr.app import Message

from fedsim.client.groups import JobGroup
from fedsim.engine.serialize import Bytes, serialize

CALLS_PER_WORKER = 2  # so that the next call is there when a worker becomes free
SHARED_BYTES = 64 * 1024  # from this size on a buffer enters the object store by itself
Work = Message | JobGroup


@dataclass(eq=False)
class Queued:
    """A work that is queued or with a worker."""

    work: Work
    clients: list[int]
    kind: str  # train or evaluate, or another message type
    head: bytes
    buffers: list[Any]  # arrays, or references to shared ones
    shared: dict[int, Any]  # address of a buffer -> its reference in the object store
    home: int  # the slot whose worker has the data of the clients in memory
    attempts: int = 0

    def singly(self) -> "list[Queued]":
        """A job for each client of a group, or the job itself if it has no more than one. Nothing is averaged then."""
        if isinstance(self.work, Message) or len(self.clients) == 1:
            return [self]
        found = []
        for job in self.work.jobs:
            work = replace(self.work, jobs=[job], averages=False)
            head, buffers = serialize(work)
            passed = [share(b, self.shared) for b in buffers]
            found.append(Queued(work, [job.client], self.kind, head, passed, self.shared, self.home, self.attempts))
        return found


@dataclass(eq=False)
class Call:
    """The jobs of a call to a worker, and references to their clients' new states. Without jobs: the worker's start."""

    jobs: list[Queued]
    states: list[Any] | None = field(default_factory=list)  # None: they come with the results
    began: float | None = None  # when the worker turned to it (monotonic clock); None: it is behind another call


@dataclass(eq=False)
class Slot:
    """A worker, or the one that replaced it after its death, with its calls and its queue."""

    actor: Any
    calls: dict[Any, Call] = field(default_factory=dict)  # by the reference to the replies, in the order of the work
    queue: deque[Queued] = field(default_factory=deque)  # jobs of the clients whose data this worker has in memory

    @property
    def current(self) -> Call | None:
        """The call the worker is at."""
        return next(iter(self.calls.values()), None)

    @property
    def starting(self) -> bool:
        return any(not call.jobs for call in self.calls.values())

    @property
    def idle(self) -> bool:
        """Whether the worker has no jobs; it may be starting."""
        return not any(call.jobs for call in self.calls.values())

    def has_room(self) -> bool:
        """Whether the worker can get another call; a job that is tried again stays alone with its worker. A worker that
        is starting gets none: if its machine is lost it never comes, and others take the jobs of its queue."""
        if self.starting:
            return False
        again = any(job.attempts > 1 for call in self.calls.values() for job in call.jobs)
        return len(self.calls) < (1 if again else CALLS_PER_WORKER)


def share(buffer: Bytes, shared: dict[int, Any]) -> Any:
    """Large buffers enter the object store, each only once; small ones travel with the call."""
    if buffer.nbytes < SHARED_BYTES:
        return buffer
    key = buffer.__array_interface__["data"][0]
    if key not in shared:
        shared[key] = ray.put(buffer)
    return shared[key]
