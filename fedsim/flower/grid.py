"""What an implementation of `flwr.serverapp.Grid` needs besides that class.

Private parts of Flower: `Run` and `NodeInfo`, which the signatures of Grid name; `ObjectPushError`, which Flower's own grid
raises; `TaskIdentity`, from which `Message` takes its sender; and the field of a message that holds its id.
"""

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["NodeInfo", "ObjectPushError", "Run", "empty_run", "set_message_id", "set_task_identity"]


def empty_run(run_id: int) -> Run:
    """A Run that has this id and no app."""
    return Run.create_empty(run_id)


def set_task_identity(run_id: int, node_id: int, task_id: int) -> None:
    """Sets the task of this process; outside Flower's own runtimes `Message()` raises until that is done."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, task_id


def set_message_id(message: Message, message_id: str) -> None:
    """Gives a message its id. Every Flower grid does so when it accepts a message; the public attribute is read-only."""
    message.metadata.__dict__["_message_id"] = message_id
