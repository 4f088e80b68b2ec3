"""Tasks of a SuperNode in `--isolation process`: taking them and running the ClientApp for one.

Private parts of Flower: the Runtime API of the SuperNode as its SuperExec uses it (client, authentication, retries), the
function behind the `flwr-clientapp` command, and the two functions by which it installs a bundle and loads its ClientApp.
"""

import os
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.run_superexec import _SUPEREXEC_AUTH_METHODS
from flwr.supernode.runtime import run_clientapp as runner

Handler = Callable[[Message, Context], Message]


class TaskQueue:
    """The ClientApp tasks of the SuperNode at `address` (on this machine's loopback, without TLS).

    `secret` is the content of the file that SuperNode and executor get as `--superexec-auth-secret-file`.
    """

    def __init__(self, address: str, secret: bytes) -> None:
        self._request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        self._client = RuntimeHttpClient.from_server_address(
            server_address=address,
            insecure=True,
            root_certificates=None,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_SUPEREXEC_AUTH_METHODS),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def acquire(self) -> str | None:
        """The token of the next task; None if there is no task."""
        found = self._client.AcquireTask(self._request)
        return found.token if found.HasField("task") and found.token else None


def run_client_app(address: str, token: str, load: Callable[[bytes], Handler]) -> None:
    """Answers the message of one task in this process, which ends when its parent process does.

    `load` takes the bundle that the server sent and returns what handles the message. The bundle is not installed, and
    nothing in it is run.
    """
    received = list[bytes]()

    def keep(bundle: bytes, skip_prompt: bool = False) -> None:
        received.append(bundle)

    def loader(**_: object) -> Callable[[str, str, str], Callable[..., Message]]:
        return lambda *_: lambda message, context: load(received[0])(message, context)

    vars(runner).update(install_from_fab=keep, get_load_client_app_fn=loader)
    runner.run_clientapp(runtime_api_address=address, token=token, insecure=True, parent_pid=os.getppid())
