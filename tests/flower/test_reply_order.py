"""The main loop of Flower's SuperNode after a run was stopped while it received a message."""

import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal as main_loop
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.flower.reply_order import keep_replies_in_order

NUMBERS = count(1)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> InMemoryNodeState:
    for name in ("_pull_and_store_message", "_push_messages"):
        monkeypatch.setattr(main_loop, name, getattr(main_loop, name))  # restored afterwards
    InlineGrid(RunConfig())  # without a task Flower makes no messages
    state = InMemoryNodeState(InMemoryObjectStore())
    state.set_node_id(7)
    state.store_run(Run.create_empty(1))
    return state


def message(reply_to: Message | None = None) -> Message:
    content = RecordDict({"number": ConfigRecord({"number": next(NUMBERS)})})
    made = Message(content, reply_to=reply_to) if reply_to else Message(content, 7, "query")
    made.metadata.__dict__.update(_message_id=made.object_id, _run_id=1)
    return made


def pull(state: InMemoryNodeState, received: Message, stopped: bool) -> int | None:
    def confirm(run_id: int, message_id: str) -> None:
        if stopped:
            raise RunNotRunningException

    unused: Any = None  # the run is known already
    contents = {key: part.deflate() for key, part in get_all_nested_objects(received).items()}
    return main_loop._pull_and_store_message(
        state=state,
        object_store=state.object_store,
        node_config={},
        receive=lambda: (received, get_object_tree(received)),
        confirm_message_received=confirm,
        pull_object=lambda run_id, object_id: contents[object_id],
        get_run=unused,
        get_fab=unused,
        trusted_entities=unused,
    )


def push(state: InMemoryNodeState) -> list[str]:
    """Lets the node send its replies; returns the ids of the messages that they answer."""
    sent: list[str] = []

    def send(reply: Message, tree: ObjectTree, seconds: float) -> tuple[set[str], str]:
        sent.append(reply.metadata.reply_to_message_id)
        return set(), ""

    main_loop._push_messages(state=state, object_store=state.object_store, send=send, push_object=lambda *_: None)
    return sent


def finish(state: InMemoryNodeState, received: Message) -> None:
    """What a ClientApp does with a message."""
    reply, answered = message(reply_to=received), received.metadata.message_id
    state.record_message_processing_start(answered)
    state.record_message_processing_end(answered)
    state.object_store.preregister(1, get_object_tree(reply))
    state.store_message(reply)


def test_the_reply_to_a_dropped_message_does_not_replace_the_next_one(
    state: InMemoryNodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_replies_in_order()
    dropped, following = message(), message()
    assert pull(state, dropped, stopped=True) is None
    assert pull(state, following, stopped=False) == 1
    finish(state, dropped)  # its ClientApp had started before
    clock = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: finish(state, following)})
    monkeypatch.setattr(main_loop, "time", clock)
    assert push(state) == [dropped.metadata.message_id, following.metadata.message_id]


def test_a_dropped_message_without_a_reply_is_not_waited_for(state: InMemoryNodeState) -> None:
    keep_replies_in_order()
    dropped, following = message(), message()
    assert pull(state, dropped, stopped=True) is None
    assert pull(state, following, stopped=False) == 1
    finish(state, following)
    assert push(state) == [following.metadata.message_id]
