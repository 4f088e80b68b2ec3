"""The nodes of a federation: what `fedsim deploy status` knows, asked again from time to time while somebody looks."""

import threading
import time
from collections.abc import Callable
from typing import Any

from fedsim.errors import FedsimError

PAUSE_SECONDS = 10.0  # between two questions
SHOWN = ("federation", "healthy", "server", "current")
HIDDEN = ("policy", "id")  # of a node


class Nodes:
    """The status of the federation `name`, as `ask` finds it: in a thread of its own, for machines may take long to
    answer."""

    def __init__(self, name: str, ask: Callable[[], dict[str, Any]]) -> None:
        self._ask = ask
        self._found: dict[str, Any] = {"federation": name, "asked": None, "nodes": []}
        self._thread: threading.Thread | None = None
        self._asked = float("-inf")

    def status(self) -> dict[str, Any]:
        """What was answered last; asks again if that is some time ago."""
        if (self._thread is None or not self._thread.is_alive()) and time.monotonic() - self._asked > PAUSE_SECONDS:
            self._thread = threading.Thread(target=self._update, name="nodes", daemon=True)
            self._thread.start()
        return self._found

    def _update(self) -> None:
        try:
            found = self._ask()
        except (FedsimError, OSError) as error:
            self._found = {**self._found, "problem": str(error), "asked": time.time()}
        else:
            nodes = [{key: value for key, value in node.items() if key not in HIDDEN} for node in found["nodes"]]
            self._found = {**{key: found[key] for key in SHOWN}, "nodes": nodes, "asked": time.time()}
        self._asked = time.monotonic()
