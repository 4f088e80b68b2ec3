"""A SuperNode answers every message before it takes the next one, also after a run was stopped.

Flower 1.39 sends replies only after it has received a message, and then whatever replies are there. If a run is stopped
while a node receives its message, the node drops the message but may still make its reply. That reply is taken for the one
to the next message: from then on the node sends a reply only when another message arrives, and every new run waits for it.
Private parts of Flower: the two functions of the SuperNode's main loop, and the messages in its state.
"""

from typing import Any

from flwr.supernode import start_client_internal as main_loop


def keep_replies_in_order() -> None:
    """Makes the main loop forget a message that it drops, and send replies until that to the message at hand is sent."""
    pull, push = main_loop._pull_and_store_message, main_loop._push_messages

    def pull_or_forget(state: Any, **rest: Any) -> int | None:
        run_id = pull(state=state, **rest)
        if run_id is None:
            state.delete_messages(message_ids=_unanswered(state))
        return run_id

    def push_until_answered(state: Any, **rest: Any) -> None:
        push(state=state, **rest)
        while _unanswered(state):
            push(state=state, **rest)

    vars(main_loop).update(_pull_and_store_message=pull_or_forget, _push_messages=push_until_answered)


def _unanswered(state: Any) -> list[str]:
    """The ids of the messages whose reply was not sent yet."""
    with state.lock_msg_store:
        messages = [entry.message.metadata for entry in state.msg_store.values()]
    return [message.message_id for message in messages if not message.reply_to_message_id]
