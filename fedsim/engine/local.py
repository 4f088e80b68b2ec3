"""What our two grids share: a fixed set of clients on this machine or cluster, and their states."""

from abc import abstractmethod
from collections.abc import Collection, Iterable
from itertools import count

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedsim import wire
from fedsim.config import RunConfig
from fedsim.payload import Memory

RUN_ID, SERVER_NODE, FIRST_NODE = 1, 1, 2


class LocalGrid(Grid):
    """A Flower grid whose nodes are the run's clients; node ids are client ids shifted by a constant."""

    engine: str

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._run = Run.create_empty(RUN_ID)
        self._ids = count(1)
        # Flower makes new messages on behalf of the task this process is; outside its runtime nobody else says which.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, SERVER_NODE, 1

    @abstractmethod
    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        """Block until at least one reply is there, or the time is over."""

    @abstractmethod
    def memories(self) -> dict[int, Memory]:
        """What every client remembers; only to be asked while nothing is out."""

    @abstractmethod
    def restore(self, memories: dict[int, Memory]) -> None:
        """Give the clients back what they remembered."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the grid holds."""

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
        while waiting and (found := self.await_messages(waiting, timeout or self.config.timeout)):
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
        return replies

    def _enter(self, message: Message) -> str:
        """Gives a message its id, as every Flower grid does when it takes one."""
        message.metadata.__dict__["_message_id"] = f"message-{next(self._ids)}"
        return message.metadata.message_id


def client_of(message: Message) -> int:
    return message.metadata.dst_node_id - FIRST_NODE


def context_of(config: RunConfig, client: int, state: RecordDict) -> Context:
    """The world of one node, as Flower's own runtimes describe it."""
    node_config = {"partition-id": client, "num-partitions": config.clients}
    return Context(RUN_ID, FIRST_NODE + client, dict(node_config), state, dict(config.flat()))


def state_of(memory: Memory) -> RecordDict:
    state = RecordDict()
    wire.write_memory(state, memory)
    return state
