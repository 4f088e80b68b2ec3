"""A Flower grid of real ClientApps in this process, polled as Flower's own, whose nodes and messages go as a script says."""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.client.app import app
from fedsim.config import RunConfig
from fedsim.engine.base import RUN_ID, SERVER_NODE
from fedsim.flower.grid import NodeInfo, Run, set_message_id, set_task_identity

RAISED, UNAVAILABLE, OFFLINE = 2, 3, 5  # Flower's error codes
FIRST_NODE = 100


class Nodes(Grid):
    """`online` says who is there: node id -> client. A node's state in memory is gone with it; its disk stays.

    As a SuperNode does, a node takes its messages in the order in which they were sent, and one at a time."""

    def __init__(self, config: RunConfig, disks: Path) -> None:
        set_task_identity(RUN_ID, SERVER_NODE, 1)  # Flower makes messages on behalf of a task
        self.config, self.disks = config, disks
        self.online = {FIRST_NODE + client: client for client in range(config.clients)}
        self.started = dict.fromkeys(self.online, "")  # when, as Flower tells it
        self._states, self._ids = dict[int, RecordDict](), count(1)
        self._waiting, self._replies = dict[str, Message](), dict[str, Message]()
        # The script: called with every message that is sent; which of the messages is worked on next; whether a node works
        # at all; what becomes of a reply on its way (None: it is lost); and of the replies that are handed out.
        self.on_send: Callable[[Message], None] = lambda message: None
        self.next: Callable[[Sequence[str]], str] = lambda due: due[-1]  # nobody may rely on an order among nodes
        self.works: Callable[[int], bool] = lambda node: True
        self.on_reply: Callable[[Message, Message], Message | None] = lambda message, reply: reply
        self.on_deliver: Callable[[list[Message]], list[Message]] = lambda replies: replies

    def leave(self, node: int) -> None:
        self.online.pop(node, None)
        self._states.pop(node, None)

    def get_node_ids(self) -> list[int]:
        return list(self.online)

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=node, last_activated_at=self.started.get(node, "")) for node in self.online]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"message-{next(self._ids)}")
            set_message_id(message, ids[-1])
            self._waiting[ids[-1]] = message
            self.on_send(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """One reply at a time."""
        due = [key for key in message_ids if key in self._waiting or key in self._replies]
        found = list[Message]()
        if due:
            key = self.next(due)
            if key in self._waiting and self.works(node := self._waiting[key].metadata.dst_node_id):
                self._work(node, key)
            found = [self._replies.pop(key)] if key in self._replies else []
        return self.on_deliver(found)

    def _work(self, node: int, last: str) -> None:
        """A node serves its messages up to this one."""
        for key in [key for key, message in self._waiting.items() if message.metadata.dst_node_id == node]:
            message = self._waiting.pop(key)
            reply = self.on_reply(message, self._serve(message))
            if reply is not None:
                self._replies[key] = reply
            if key == last:
                return

    def drop(self, message: Message) -> None:
        """It is lost on its way to the node."""
        del self._waiting[message.metadata.message_id]

    def _serve(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if node not in self.online:
            return Message(Error(OFFLINE, "Node is offline"), reply_to=message)
        client, state = self.online[node], self._states.setdefault(node, RecordDict())
        own: dict[str, bool | int | float | str] = {"partition-id": client, "state-dir": str(self.disks / str(client))}
        try:
            return app(message, Context(RUN_ID, node, own, state, dict(self.config.flat())))
        except Exception as error:
            return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *args: Any, **keys: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError
