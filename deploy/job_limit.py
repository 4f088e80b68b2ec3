"""A limit for the seconds that a client's process may take: a job that hangs must not hang its node.

First the job is interrupted, so that the server gets a reply that says why. Code that cannot be interrupted, such as a
driver that waits for a GPU, is ended with the process a moment later; its stack is in the executor's log then, and the
SuperNode answers in its place.
"""

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from fedsim.errors import FedsimError

OTHER_SECONDS = 3600.0  # for receiving a message, and for sending the reply
GRACE = 10.0  # seconds that an interrupted job gets to end


def end_later(seconds: float) -> None:
    """Ends this process after so many seconds, whatever it does then; a later call replaces the limit."""
    faulthandler.dump_traceback_later(seconds, exit=True)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises FedsimError inside after so many seconds. To be used in the main thread of a client's process."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise FedsimError(f"the job took longer than {seconds:g} seconds and was ended")

    before = signal.signal(signal.SIGALRM, interrupt)
    end_later(seconds + GRACE)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # does not depend on the wall clock
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        end_later(OTHER_SECONDS)
