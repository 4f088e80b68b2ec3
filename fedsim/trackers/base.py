"""What a tracker is: a class that receives parameters, numbers by round, tables with a row per client, and files.

Its methods are called in a thread of their own, one after the other, and may take their time or raise: see
`fedsim.trackers.run_log`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsim import registry
from fedsim.config import LogParams, RunConfig
from fedsim.errors import ConfigError

Row = Mapping[str, float | int | None]  # of a client's table: by the name of the column


@dataclass(frozen=True)
class TrackedRun:
    """The run that is logged."""

    id: str  # the same however often the run is stopped and resumed
    name: str
    group: str  # the sweep it belongs to; empty: none
    folder: Path
    config: Mapping[str, Any]  # by key
    rounds: int
    scalars: tuple[str, ...]  # the names that numbers may have
    columns: tuple[str, ...]  # of the tables
    done: int | None  # the round from which it goes on; None: it begins


class Tracker:
    """Logs one run. A third party's is found by its entry point in the group `fedsim.trackers`."""

    needs: Mapping[str, str] = {}  # packages that are not always installed: name of the import -> of the distribution
    tables: int | None = 20  # about so many tables of a run are given to it, those of the end included; None: all

    def __init__(self, params: LogParams) -> None:
        self.params = params

    def check(self) -> None:
        """Before the run starts: raises ConfigError if something is missing."""
        if missing := [name for name in self.needs if find_spec(name) is None]:
            command = f"pip install {' '.join(self.needs[name] for name in missing)}"
            raise ConfigError(f"log: the package {', '.join(missing)} is missing: {command}")

    def begin(self, run: TrackedRun) -> int:
        """Opens the run, or goes on with it. Returns the last round that was logged before and is kept; else 0."""
        raise NotImplementedError

    def scalars(self, number: int, values: Mapping[str, float]) -> None:
        """Numbers after round `number`; there may be several calls for a round, with other names."""
        raise NotImplementedError

    def clients(self, number: int, rows: Sequence[Row]) -> None:
        """A row per client, with its latest values after round `number`."""

    def end(self, status: str, files: Mapping[str, Path]) -> None:
        """The run is `finished`, `failed` or `interrupted`; `files`: what it made, by name."""


def trackers_of(config: RunConfig) -> dict[str, Tracker]:
    """The trackers that a run asks for, by name. Raises ConfigError if one of them cannot be used here."""
    found: dict[str, Tracker] = {}
    for name in config.log_names:
        found[name] = registry.find("tracker", name)(config.params("log"))
        found[name].check()
    return found
