"""Flower's SuperNode with shorter waits; takes the options of `flower-supernode`.

    python -m fedsim.deploy.supernode OPTIONS

Flower's own looks for messages every 3 s and for replies every 0.5 s. This one waits a tenth of the time since it last had a
message (see `fedsim.transport.polling`), so that a round hardly waits and an idle node still costs nothing.
"""

import time

from fedsim.flower import supernode
from fedsim.flower.object_pull import retry_sooner
from fedsim.flower.reply_order import keep_replies_in_order
from fedsim.transport.polling import Polling

FIRST_WAIT = 0.1  # seconds; after a message
REPLY_WAIT = 0.02  # while a reply is being made
RECONNECT_WAIT = 5  # at most, between two attempts to reach the SuperLink


def shorten_waits() -> None:
    polling = Polling(FIRST_WAIT, supernode.IDLE_WAIT)

    def sleep(seconds: float) -> None:
        if seconds >= supernode.IDLE_WAIT:
            polling.sleep()
        else:
            polling.worked()
            time.sleep(min(seconds, REPLY_WAIT))

    retry_sooner()
    supernode.limit_reconnect_delay(RECONNECT_WAIT)
    supernode.replace_sleep(sleep)


if __name__ == "__main__":
    shorten_waits()
    keep_replies_in_order()
    supernode.run_supernode()
