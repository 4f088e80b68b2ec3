"""Tasks of a SuperNode in `--isolation process`: taking them and running the ClientApp for one.

Private parts of Flower: the Runtime API of the SuperNode as its SuperExec uses it (client, authentication, retries), and the
function behind the `flwr-clientapp` command.
"""

import os

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.run_superexec import _SUPEREXEC_AUTH_METHODS
from flwr.supernode.runtime.run_clientapp import run_clientapp


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


def run_client_app(address: str, token: str) -> None:
    """Runs the ClientApp for one task in this process, which ends when its parent process does."""
    run_clientapp(runtime_api_address=address, token=token, insecure=True, parent_pid=os.getppid())
