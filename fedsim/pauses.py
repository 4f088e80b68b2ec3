"""How long to wait before looking again: a tenth of the time nothing has happened, within bounds.

Whoever is in the middle of a federation looks often; whoever waits for the next one, seldom. So a round has hardly any
waiting in it, and an idle federation costs nothing.
"""

import time

SHARE = 0.1


class Pauses:
    """Pauses between two looks at something; `worked` says that there was something to do."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self.worked()

    def worked(self) -> None:
        self._since = time.monotonic()

    def sleep(self) -> None:
        idle = time.monotonic() - self._since
        time.sleep(min(self._longest, max(self._shortest, SHARE * idle)))
