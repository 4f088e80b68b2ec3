"""What fedsim's own grids share: a fixed set of clients, the clients' states, and the time limit of a job.

Every message is answered. The time limit (`timeout`) counts from the moment a client begins to work on a message, not
while the message is queued; the reply for a client that exceeds it is an error.
"""

import traceback
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from math import inf

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.allocator import keep_freed_memory
from fedsim.client.app import app
from fedsim.client.groups import JobGroup
from fedsim.client.jobs import described
from fedsim.config import RunConfig
from fedsim.flower.grid import Run, empty_run, set_message_id, set_task_identity
from fedsim.payload import Answer, ClientState, Failure
from fedsim.transport import wire

RUN_ID, SERVER_NODE, FIRST_NODE = 1, 1, 2
RAISED, CRASHED = 2, 8  # Flower's error codes for a ClientApp that raised, and for one that ended without a reply


class LocalGrid(Grid):
    """A Flower grid whose nodes are the run's clients; node ids are client ids plus FIRST_NODE."""

    engine: str

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        keep_freed_memory()
        self._run = empty_run(RUN_ID)
        self._ids = count(1)
        # Flower stamps new messages with the identity of the current task, which its runtime would set.
        set_task_identity(RUN_ID, SERVER_NODE, 1)

    @abstractmethod
    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        """Waits until there is a reply to one of these messages, at most `timeout` seconds; returns all that are there.

        `message_ids` are all messages whose replies are still wanted: a late reply to any other message is discarded.
        """

    @abstractmethod
    def send_groups(self, groups: Sequence[JobGroup]) -> None:
        """Queues jobs; those of a group are given to one worker."""

    @abstractmethod
    def receive_results(self, timeout: float) -> list[Answer | Failure]:
        """Waits for the result of at least one queued job, at most `timeout` seconds; returns all that are there."""

    @abstractmethod
    def client_states(self) -> dict[int, ClientState]:
        """The state of every client that has one; to be called while no message is in flight."""

    @abstractmethod
    def restore(self, client_states: dict[int, ClientState]) -> None:
        """Replaces the states of all clients."""

    @abstractmethod
    def close(self) -> None:
        """Releases what the grid holds."""

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def get_node_ids(self) -> Iterable[int]:
        return range(FIRST_NODE, FIRST_NODE + self.config.clients)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        waiting = set(self.push_messages(messages))
        replies: list[Message] = []
        while waiting and (found := self.await_messages(waiting, inf if timeout is None else timeout)):
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
        return replies

    def _assign_id(self, message: Message) -> str:
        """Gives a message its id, as every Flower grid does when a message is pushed."""
        set_message_id(message, f"message-{next(self._ids)}")
        return message.metadata.message_id

    @property
    def too_long(self) -> str:
        """Why a job failed that exceeded the time limit."""
        return f"its job took longer than timeout={self.config.timeout:g} seconds"


def client_of(message: Message) -> int:
    """The client a message is sent to."""
    return message.metadata.dst_node_id - FIRST_NODE


def context_of(config: RunConfig, client: int, state: RecordDict) -> Context:
    """The context of a client's node, with the keys that Flower's own simulation gives it."""
    node_config = {"partition-id": client, "num-partitions": config.clients}
    return Context(RUN_ID, FIRST_NODE + client, dict(node_config), state, dict(config.flat()))


def execute(message: Message, config: RunConfig, state: ClientState) -> tuple[Message, ClientState | None]:
    """Runs the ClientApp on a message; returns its reply, and the client's new state if it trained."""
    client, records = client_of(message), RecordDict()
    wire.write_state(records, state)
    try:
        reply = app(message, context_of(config, client, records))
    except Exception as error:
        reason = f"{traceback.format_exc()}\n{described(error)}"
        return Message(Error(RAISED, reason), reply_to=message), None
    return reply, wire.read_state(records) if message.metadata.message_type == wire.TRAIN else None
