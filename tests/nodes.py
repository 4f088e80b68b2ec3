"""A Flower grid of real ClientApps whose nodes come and go as a test says: polled as Flower's own, in this process."""

from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fedsim.client.app import app
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.flower.grid import NodeInfo, Run, set_message_id

RAISED, UNAVAILABLE, OFFLINE = 2, 3, 5  # Flower's error codes


class Nodes(Grid):
    """`online` says who is there: node id -> client. A node's state in memory is gone with it; its disk stays.

    As a SuperNode does, a node takes its messages in the order in which they were sent, and one at a time."""

    def __init__(self, config: RunConfig, disks: Path | None = None) -> None:
        InlineGrid(config)  # Flower makes messages on behalf of a task
        self.config, self.disks = config, disks
        self.online = {100 + client: client for client in range(config.clients)}
        self.started = dict.fromkeys(self.online, "")  # when, as Flower tells it
        self.configs = dict[int, RunConfig]()  # of nodes that see other data than the rest
        self.node_config: Callable[[int], dict[str, str]] = lambda client: {}  # besides its number
        self.loses: Callable[[Message], bool] = lambda message: False  # whether a reply is lost on the way
        self.truncates: Callable[[Message], bool] = lambda message: False  # whether only a part of a reply arrives
        self.names = dict[int, str]()  # that the keys of nodes are registered under
        self.forges: Callable[[Message, Message], Message] = lambda order, reply: reply  # what a node answers instead
        self.works: Callable[[int], bool] = lambda node: True  # whether a node gets on with its messages now
        self.happens: Callable[[Message], None] = lambda message: None  # called with every message that is pushed
        self._states, self._ids = dict[int, RecordDict](), count(1)
        self._waiting, self._replies = dict[str, Message](), dict[str, Message]()

    def leave(self, node: int) -> None:
        self.online.pop(node, None)
        self._states.pop(node, None)

    def get_node_ids(self) -> list[int]:
        return list(self.online)

    def get_nodes(self) -> list[NodeInfo]:
        names, started = self.names, self.started
        return [
            NodeInfo(node_id=node, last_activated_at=started.get(node, ""), name=names.get(node, ""))
            for node in self.online
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"message-{next(self._ids)}")
            set_message_id(message, ids[-1])
            self._waiting[ids[-1]] = message
            self.happens(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """One reply at a time, the newest first: nobody may rely on an order among nodes."""
        due = [key for key in message_ids if key in self._waiting or key in self._replies]
        if due and due[-1] in self._waiting and self.works(node := self._waiting[due[-1]].metadata.dst_node_id):
            self._work(node, due[-1])
        return [self._replies.pop(key) for key in due[-1:] if key in self._replies]

    def _work(self, node: int, last: str) -> None:
        """A node serves its messages up to this one."""
        for key in [key for key, message in self._waiting.items() if message.metadata.dst_node_id == node]:
            message = self._waiting.pop(key)
            reply = self.forges(message, self._serve(message))
            if self.truncates(reply):
                reply = Message(Error(UNAVAILABLE, "Reply message objects are unavailable."), reply_to=message)
            if not self.loses(reply):
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
        place = {} if self.disks is None else {"state-dir": str(self.disks / str(self.online[node]))}
        config = self.configs.get(node, self.config)
        state = self._states.setdefault(node, RecordDict())
        context = Context(
            1,
            node,
            {"partition-id": self.online[node], **place, **self.node_config(self.online[node])},
            state,
            dict(config.flat()),
        )
        try:
            return app(message, context)
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
