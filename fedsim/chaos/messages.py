"""Messages that are lost, late, doubled, out of order or damaged; clients that lie; nodes that come, go, hang or intrude.

What a script does happens in the process of the run. It notes the jobs that it hit in a file, for the process of the
campaign: a client whose answer is refused counts as one that failed, so the run must end as one with these failures.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from flwr.app import Error, Message, RecordDict

from fedsim.chaos import lies
from fedsim.chaos.fault import Fault, Trial
from fedsim.flower.grid import set_message_id
from fedsim.results.record import read_events
from fedsim.transport import wire

if TYPE_CHECKING:
    from fedsim.chaos.nodes import Nodes

HITS, NOTES = "hits.jsonl", "alterations.txt"  # in the folder of a trial
FIRST_JOBS = 12  # every scenario has at least so many training jobs
RAISED, UNAVAILABLE = 2, 3  # Flower's error codes
LIMIT = 12  # seconds for a job, so that nobody but a client that hangs takes longer
STRANGER = 900  # the node id of an uninvited node


class Hit(NamedTuple):
    """A job whose message or answer a fault has hit."""

    client: int
    step: int
    kind: str  # of the message

    @classmethod
    def of(cls, message: Message) -> "Hit":
        job = wire.unpack_job(message)
        return cls(job.client, job.step, message.metadata.message_type)


class Target:
    """Chooses messages by their numbers among those of some kinds, and notes them."""

    def __init__(self, folder: Path, numbers: Collection[int], kinds: Collection[str] = (wire.TRAIN,)) -> None:
        self._path, self._numbers, self._kinds, self._seen = folder / HITS, numbers, kinds, count(1)

    def __call__(self, message: Message) -> bool:
        """Whether it is one of them; to be called once for every message."""
        kind = message.metadata.message_type
        if kind not in self._kinds or next(self._seen) not in self._numbers:
            return False
        hit = Hit.of(message) if kind in (wire.TRAIN, wire.EVALUATE) else Hit(-1, 0, kind)
        with self._path.open("a") as file:
            file.write(json.dumps(hit) + "\n")
        return True


def hits(trial: Trial) -> list[Hit]:
    """The messages that were hit in a trial."""
    path = trial.folder / HITS
    return [Hit(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def alterations(trial: Trial) -> list[str]:
    """What was done to answers in a trial."""
    path = trial.folder / NOTES
    return path.read_text().splitlines() if path.exists() else []


def failing(jobs: Collection[Hit]) -> "Callable[[Nodes], None]":
    """A script in which clients do these jobs, but answer with an error."""

    def disturb(grid: "Nodes") -> None:
        def on_reply(message: Message, reply: Message) -> Message:
            failed = message.metadata.message_type in (wire.TRAIN, wire.EVALUATE) and Hit.of(message) in jobs
            return Message(Error(RAISED, "it failed"), reply_to=message) if failed else reply

        grid.on_reply = on_reply

    return disturb


class OnTheWay(Fault):
    """Something happens to one or two messages. Nodes keep their clients' states, so jobs can be repeated exactly."""

    kinds: ClassVar[tuple[str, ...]] = (wire.TRAIN, wire.EVALUATE)
    most: ClassVar[int] = 2

    def inject(self, trial: Trial) -> None:
        numbers = {trial.rng.randint(1, FIRST_JOBS) for _ in range(trial.rng.randint(1, self.most))}
        trial.disturb = lambda grid: self.disturb(grid, Target(trial.folder, numbers, self.kinds), trial.rng)
        trial.complete()
        trial.notes += [f"{hit.kind} of client {hit.client} in step {hit.step}" for hit in hits(trial)]
        if not hits(trial):
            trial.problems.append("the fault did not happen")

    @abstractmethod
    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        """Sets the script of a grid, in the process of the run."""


class LoseJob(OnTheWay):
    """A job does not reach its client."""

    name = "lost job"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        grid.on_send = lambda message: grid.drop(message) if target(message) else None


class LoseReply(OnTheWay):
    """An answer does not reach the server."""

    name = "lost answer"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        grid.on_reply = lambda message, reply: None if target(message) else reply


class TruncateReply(OnTheWay):
    """The SuperLink got only a part of an answer."""

    name = "incomplete answer"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        error = Error(UNAVAILABLE, "Reply message objects are unavailable.")
        grid.on_reply = lambda message, reply: Message(error, reply_to=message) if target(message) else reply


class DelayReply(OnTheWay):
    """Answers arrive late, when the server has asked about them already."""

    name = "late answer"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        late, polls = list[Message](), count(1)
        due = 0

        def on_reply(message: Message, reply: Message) -> Message | None:
            nonlocal due
            if not target(message):
                return reply
            late.append(reply)
            due = next(polls) + rng.randint(1, 8)
            return None

        def on_deliver(replies: list[Message]) -> list[Message]:
            if late and next(polls) >= due:
                replies = [*replies, *late]
                late.clear()
            return replies

        grid.on_reply, grid.on_deliver = on_reply, on_deliver


class DoubleReply(OnTheWay):
    """An answer arrives twice: at once, or the second time later."""

    name = "doubled answer"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        again, at_once = list[Message](), rng.random() < 0.5

        def on_reply(message: Message, reply: Message) -> Message:
            if target(message):
                again.append(reply)
            return reply

        def on_deliver(replies: list[Message]) -> list[Message]:
            if again and (at_once or again[0] not in replies):
                replies = [*replies, again.pop()]
            return replies

        grid.on_reply, grid.on_deliver = on_reply, on_deliver


class StrayReply(OnTheWay):
    """An answer to a message that was never sent."""

    name = "stray answer"

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        stray = list[Message]()

        def on_reply(message: Message, reply: Message) -> Message:
            if target(message):
                unknown = Message(RecordDict(), message.metadata.dst_node_id, wire.TRAIN)
                set_message_id(unknown, "a message of somebody else")
                stray.append(Message(RecordDict(dict(reply.content)), reply_to=unknown))
            return reply

        def on_deliver(replies: list[Message]) -> list[Message]:
            found = [*stray, *replies]
            stray.clear()
            return found

        grid.on_reply, grid.on_deliver = on_reply, on_deliver


class Reorder(Fault):
    """Clients answer in any order."""

    name = "answers in any order"

    def inject(self, trial: Trial) -> None:
        def disturb(grid: "Nodes") -> None:
            grid.next = trial.rng.choice

        trial.disturb = disturb
        trial.complete()


class Altered(OnTheWay):
    """What a client answers is changed: the answer is refused under its name, or only what cannot be is left out."""

    loss = "the client's result of that round, which is refused by name"
    kinds, most = (wire.TRAIN,), 1

    def inject(self, trial: Trial) -> None:
        super().inject(trial)
        trial.twins.append(failing_twin(trial, hits(trial)))
        trial.culprits += [f"client {hit.client}" for hit in hits(trial)]
        trial.notes += alterations(trial)

    def disturb(self, grid: "Nodes", target: Target, rng: Random) -> None:
        folder = grid.disks.parent

        def on_reply(message: Message, reply: Message) -> Message:
            if not target(message) or reply.has_error():
                return reply
            content, told = self.alter(reply.content, rng)
            with (folder / NOTES).open("a") as file:
                file.write(told + "\n")
            return Message(content, reply_to=message)

        grid.on_reply = on_reply

    @abstractmethod
    def alter(self, content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
        """The altered content, and what was done."""


class Lie(Altered):
    """Numbers that cannot be: samples that the client does not have, updates and metrics out of range."""

    name, weight = "lying client", 4

    def alter(self, content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
        return lies.lie(content, rng)


class Fuzz(Altered):
    """Records, arrays and bytes are replaced, removed or exchanged at random."""

    name, weight = "fuzzed answer", 4

    def alter(self, content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
        return lies.fuzz(content, rng)


class AlteredQuery(Altered):
    """The run may refuse to start, and names the node or the client."""

    refusal, loss = True, "the run may refuse to start, and names the node"

    def inject(self, trial: Trial) -> None:
        trial.culprits += ["node", "client"]
        trial.disturb = lambda grid: self.disturb(grid, Target(trial.folder, {1}, self.kinds), trial.rng)
        trial.complete()
        trial.notes += alterations(trial)


class FuzzRollCall(AlteredQuery):
    """A node answers the roll call with nonsense."""

    name, weight, kinds = "fuzzed roll call", 2, (wire.ROLL_CALL,)

    def alter(self, content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
        return lies.fuzz(content, rng)


class FuzzInitialModel(AlteredQuery):
    """The client that is asked for the initial model answers with nonsense."""

    name, weight, kinds = "fuzzed initial model", 2, (wire.INITIAL,)

    def alter(self, content: RecordDict, rng: Random) -> tuple[RecordDict, str]:
        return lies.fuzz(content, rng)


class Strangers(Fault):
    """Uninvited nodes are connected, from the beginning or from some job on: they claim to be a client, or talk nonsense."""

    name, weight = "uninvited nodes", 3

    def inject(self, trial: Trial) -> None:
        claimed, number = trial.rng.choice((0, 1, 3, 4, 77, -1)), trial.rng.choice((0, 1, 5, 9))
        fuzzes = trial.rng.random() < 0.5
        when = f"from job {number} on" if number else "from the beginning"
        trial.notes.append(f"a node that claims to be client {claimed}{', fuzzed' if fuzzes else ''}, {when}")

        def disturb(grid: "Nodes") -> None:
            target = Target(trial.folder, {number})

            def join() -> None:
                grid.online[STRANGER] = claimed

            def on_reply(message: Message, reply: Message) -> Message:
                if fuzzes and message.metadata.dst_node_id == STRANGER and not reply.has_error():
                    return Message(lies.fuzz(reply.content, trial.rng)[0], reply_to=message)
                return reply

            grid.on_send = lambda message: join() if target(message) else None
            grid.on_reply = on_reply
            if not number:
                join()

        trial.disturb = disturb
        trial.complete()


class Restart(Fault):
    """A node is gone in the middle of a job, and is back later, with its disk, perhaps under another id."""

    name, weight, scenarios = "restarted node", 3, ("rounds",)
    loss = "the client's results while it was away"

    def inject(self, trial: Trial) -> None:
        number, away = trial.rng.randint(1, FIRST_JOBS), trial.rng.randint(1, 8)
        renamed = trial.rng.random() < 0.5
        trial.notes.append(f"away from job {number} to job {number + away}{', then another node' if renamed else ''}")

        def disturb(grid: "Nodes") -> None:
            leaves, sent = Target(trial.folder, {number}), count(1)
            gone = list[tuple[int, int]]()

            def on_send(message: Message) -> None:
                if message.metadata.message_type != wire.TRAIN:
                    return
                now = next(sent)
                if leaves(message):
                    node = message.metadata.dst_node_id
                    gone.append((node, grid.online[node]))
                    grid.leave(node)
                elif gone and now >= number + away:
                    node, client = gone.pop()
                    node += 500 if renamed else 0
                    grid.online[node] = client
                    grid.started[node] = datetime.now(UTC).isoformat()

            grid.on_send = on_send

        trial.disturb = disturb
        trial.complete()
        missing_twin(trial)


class Hang(Fault):
    """A client never finishes a job; its node stays connected and goes on after the time limit."""

    name, scenarios = "hung client", ("rounds",)
    loss = "the client's result of that round"

    def inject(self, trial: Trial) -> None:
        number = trial.rng.randint(1, FIRST_JOBS)
        trial.settings += (f"timeout={LIMIT}",)

        def disturb(grid: "Nodes") -> None:
            target, stuck = Target(trial.folder, {number}), list[Message]()

            def on_send(message: Message) -> None:
                if target(message):
                    stuck.append(message)

            def works(node: int) -> bool:
                waits = bool(stuck) and stuck[0].metadata.dst_node_id == node
                if waits and datetime.now(UTC).timestamp() > stuck[0].metadata.created_at + LIMIT + 0.2:
                    grid.drop(stuck.pop())
                    return True
                return not waits

            grid.on_send, grid.works = on_send, works

        trial.disturb = disturb
        trial.complete()
        missing_twin(trial)


def failing_twin(trial: Trial, jobs: Collection[Hit]) -> Path:
    """The run in which clients answer these jobs with an error."""
    level: Any = trial.level
    twin: Path = level.failing_twin(trial.scenario, sorted(jobs))
    return twin


def missing_twin(trial: Trial) -> None:
    """Compares with a run in which the same results are missing."""
    steps = [event for event in read_events(trial.run) if event["kind"] == "step"]
    there = [{row["id"] for row in step["clients"]} for step in steps]
    everyone = set().union(*there)
    missing = [Hit(client, step, wire.TRAIN) for step, ids in enumerate(there) for client in everyone - ids]
    if missing:
        trial.twins.append(failing_twin(trial, missing))
