"""Runs the ClientApp of one SuperNode: a process that has loaded torch already and forks for every message.

    python -m fedsim.deploy.executor ADDRESS SECRET_FILE       in the node's home folder

Flower's own SuperExec starts a new interpreter for each message, which loads torch for seconds and then works for
milliseconds. Here every message still gets a process of its own, so that a crash, a memory leak or a GPU context ends with
it, and it is ended after a limit (`fedsim.deploy.job_limit`). What a message may ask for is decided by
`fedsim.deploy.admission`; no code that arrives with it is run.
"""

import os
import signal
import sys
import traceback
from functools import partial
from importlib import import_module
from pathlib import Path

from fedsim.allocator import keep_freed_memory
from fedsim.config import RunConfig
from fedsim.deploy.admission import Admission
from fedsim.deploy.job_limit import OTHER_SECONDS, end_later, limited
from fedsim.flower.app_bundle import app_bundle
from fedsim.flower.client_app_tasks import TaskQueue, run_client_app
from fedsim.flower.object_pull import retry_sooner
from fedsim.transport.polling import Polling

# What most jobs need, loaded before the first fork; none of it initializes a GPU.
PRELOADED = (
    "torch",
    "fedsim.client.app",
    "fedsim.clients.task",
    "fedsim.clients.local_sgd",
    "fedsim.partitions.client_data",
    "fedsim.strategies.fedavg",
)


def serve(address: str, secret: bytes) -> None:
    """Takes tasks from the SuperNode at `address` until the process is ended."""
    tasks = TaskQueue(address, secret)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes children that ended
    polling = Polling(shortest=0.05, longest=1.0)
    while True:
        if token := tasks.acquire():
            run_in_child(address, token)
            polling.worked()
        polling.sleep()


def run_in_child(address: str, token: str) -> None:
    """Forks a process that runs the ClientApp for one task; returns at once in the parent."""
    if os.fork():
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    end_later(OTHER_SECONDS)
    try:
        run_client_app(address, token, partial(Admission, Path.cwd(), limited=limited))
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without closing the connections that the parent still uses


if __name__ == "__main__":
    keep_freed_memory()
    retry_sooner()
    for module in PRELOADED:
        import_module(module)
    RunConfig()  # loads what every check of a configuration needs
    app_bundle()  # made once, for comparison
    serve(sys.argv[1], Path(sys.argv[2]).read_bytes())
