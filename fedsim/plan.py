"""What a sweep leaves in its folder for reports: which runs were asked for, what a paper says of them, what was tried."""

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedsim.files import write_json
from fedsim.published import Number

PLAN = "sweep.json"


@dataclass(frozen=True)
class Planned:
    """One run that was asked for; `title` is the cell of the sweep file that it belongs to, if it has one."""

    config: dict[str, Any]
    title: str = ""
    published: dict[str, Number] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Trial:
    """A search: for which run, the candidates, and the accuracy of each on validation data."""

    run: str
    points: list[dict[str, Any]]
    scores: list[float | None]


@dataclass(frozen=True)
class Plan:
    name: str = ""
    about: str = ""
    runs: dict[str, Planned] = field(default_factory=dict)  # by folder
    trials: list[Trial] = field(default_factory=list)

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        write_json(home / PLAN, asdict(self))


def plan_of(home: Path) -> Plan:
    """The plan of the sweep whose folder this is; an empty one for other folders."""
    path = home / PLAN
    return _read(path, path.stat().st_mtime_ns) if path.exists() else Plan()


@lru_cache(maxsize=8)
def _read(path: Path, written: int) -> Plan:
    """Every run of the sweep asks for it."""
    try:
        tree = json.loads(path.read_text())
        runs = {name: Planned(**entry) for name, entry in tree["runs"].items()}
        return Plan(tree["name"], tree["about"], runs, [Trial(**trial) for trial in tree["trials"]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Plan()  # somebody else's file of this name
