"""Runs the ClientApp of one SuperNode: a warm process that forks for every message.

Flower's own SuperExec starts a new interpreter for each message, which loads torch for seconds before it works for
milliseconds. This one has loaded Flower and torch already; every message still gets a process of its own, made by fork, so
that a crash, a leak or a GPU context lasts no longer than one message. The app's code comes with the run as usual.
"""

import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.run_superexec import _SUPEREXEC_AUTH_METHODS
from flwr.supernode.runtime.run_clientapp import run_clientapp

from fedsim.haste import ask_sooner
from fedsim.pauses import Pauses

# What most jobs need, loaded before the forks; nothing of it touches a GPU.
WARM = ("torch", "fedsim.client_app", "clients.task", "clients.local_sgd", "partitions.silo", "strategies.fedavg")


def serve(address: str, secret: bytes) -> None:
    """Takes tasks from the SuperNode at `address`, for ever."""
    client = RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # on this machine's loopback
        root_certificates=None,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_SUPEREXEC_AUTH_METHODS),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that ended need no farewell
    pauses = Pauses(shortest=0.05, longest=1.0)
    while True:
        found = client.AcquireTask(request)
        if found.HasField("task") and found.token:
            launch(address, found.token)
            pauses.worked()
        pauses.sleep()


def launch(address: str, token: str) -> None:
    if os.fork():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        run_clientapp(runtime_api_address=address, token=token, insecure=True, parent_pid=os.getppid())
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the parent's connections are not ours to close


if __name__ == "__main__":
    ask_sooner()
    for module in WARM:
        import_module(module)
    serve(sys.argv[1], Path(sys.argv[2]).read_bytes())
