"""How long to sleep between two polls: a tenth of the time since something happened, within bounds.

During a round polls are frequent, so that hardly any time is spent waiting; an idle federation costs nothing.
"""

import time

SHARE = 0.1


class Polling:
    """Sleeps between polls; `worked` says that a poll found something."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self.worked()

    def worked(self) -> None:
        self._since = time.monotonic()

    def sleep(self) -> None:
        idle = time.monotonic() - self._since
        time.sleep(min(self._longest, max(self._shortest, SHARE * idle)))
