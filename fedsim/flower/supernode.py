"""Flower's SuperNode as a function, and the two settings of it that have no command-line option.

Private parts of Flower: the entry point of `flower-supernode`; the module of its main loop, whose only waits are
`time.sleep(3)` when no message came and `time.sleep(0.5)` while a reply is being made; the longest pause between two
attempts to reach the SuperLink.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace

from flwr.supercore.retry import grpc_retry
from flwr.supernode import start_client_internal as main_loop
from flwr.supernode.cli import flower_supernode

IDLE_WAIT = 3.0  # seconds; what the main loop sleeps when no message came


def replace_sleep(sleep: Callable[[float], None]) -> None:
    """Makes the main loop of the SuperNode wait by `sleep(seconds)` instead of `time.sleep`; nothing else changes."""
    vars(main_loop)["time"] = SimpleNamespace(**{**vars(time), "sleep": sleep})


def limit_reconnect_delay(seconds: int) -> None:
    """Sets the longest pause between two attempts to reach the SuperLink; Flower's is 20 s."""
    vars(grpc_retry)["MAX_RETRY_DELAY"] = seconds


def run_supernode() -> None:
    """Runs the SuperNode with the options of `sys.argv`, those of `flower-supernode`."""
    flower_supernode()
