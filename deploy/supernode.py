"""Flower's own SuperNode, with shorter waits: it looks for messages every 3 s and for replies every 0.5 s as it comes.

Takes the options of `flower-supernode`. Both waits are `time.sleep` calls in one module of Flower; here that module gets a
clock of its own, whose pauses follow what is going on (see `fedsim.pauses`). A SuperLink that was away is looked for sooner,
too.
"""

import time
from types import SimpleNamespace

from flwr.supercore.retry import grpc_retry
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from fedsim.haste import ask_sooner
from fedsim.pauses import Pauses

FIRST = 0.1  # seconds; the pause of a SuperNode that has just worked
IDLE = 3.0  # the wait of a SuperNode that got no message; every other one is for a reply in the making
REPLY = 0.02
RETRY = 5  # seconds at most between two attempts to reach the SuperLink, instead of 20


def hurry() -> None:
    pauses = Pauses(FIRST, IDLE)

    def sleep(seconds: float) -> None:
        if seconds >= IDLE:
            pauses.sleep()
        else:
            pauses.worked()
            time.sleep(min(seconds, REPLY))

    ask_sooner()
    vars(grpc_retry)["MAX_RETRY_DELAY"] = RETRY
    vars(start_client_internal)["time"] = SimpleNamespace(**{**vars(time), "sleep": sleep})


if __name__ == "__main__":
    hurry()
    flower_supernode()
