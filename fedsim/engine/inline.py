"""The inline engine: every client runs in this process, one after the other, in the order it was asked. No Ray."""

import traceback
from collections.abc import Collection, Iterable

from flwr.app import Error, Message, RecordDict

from fedsim import wire
from fedsim.client_app import app
from fedsim.config import RunConfig
from fedsim.engine.local import LocalGrid, client_of, context_of, state_of
from fedsim.payload import Memory

RAISED = 2  # Flower's error code for a ClientApp that raised


class InlineGrid(LocalGrid):
    """A message waits until somebody asks for its reply; then its client runs."""

    engine = "inline"

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self._states: dict[int, RecordDict] = {}
        self._waiting: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        taken = {self._enter(message): message for message in messages}
        self._waiting |= taken
        return list(taken)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.await_messages(list(message_ids), 0.0)

    def await_messages(self, message_ids: Collection[str], timeout: float) -> list[Message]:
        due = next((key for key in self._waiting if key in message_ids), None)
        return [] if due is None else [self._execute(self._waiting.pop(due))]

    def memories(self) -> dict[int, Memory]:
        return {client: wire.read_memory(state) for client, state in sorted(self._states.items())}

    def restore(self, memories: dict[int, Memory]) -> None:
        self._states = {client: state_of(memory) for client, memory in memories.items()}

    def close(self) -> None:
        self._waiting.clear()

    def _execute(self, message: Message) -> Message:
        client = client_of(message)
        state = RecordDict(dict(self._states.get(client, {})))  # a job that raises leaves the state as it was
        reply = execute(message, self.config, client, state)
        if reply.has_content() and state:
            self._states[client] = state
        return reply


def execute(message: Message, config: RunConfig, client: int, state: RecordDict) -> Message:
    """Runs the ClientApp on one message; what it raises becomes an error reply."""
    try:
        return app(message, context_of(config, client, state))
    except Exception as error:
        told = f"{traceback.format_exc()}\n{type(error).__name__}: {error}"
        return Message(Error(RAISED, told), reply_to=message)
