"""sweep.json in the folder of a sweep: the planned runs, their published numbers, and the results of searches."""

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from fedsim.files import write_json
from fedsim.sweeps.published import PublishedNumber

SWEEP_MANIFEST = "sweep.json"


@dataclass(frozen=True)
class PlannedRun:
    """A run that the sweep asks for. `title` is the name of its cell in the sweep file, if it has one; `published`
    are the numbers of a paper by kind of model, or its rounds to the target; `baseline` is the folder of the run that its
    speed-up is against; `clients` are those that reports are about (empty: all)."""

    config: dict[str, Any]
    title: str = ""
    published: dict[str, PublishedNumber] = field(default_factory=dict)
    source: str = ""
    baseline: str = ""
    clients: tuple[int, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """A hyper-parameter search: the run it was made for, the candidates, their scores on validation data (None: the
    candidate failed), what became of them, and the last round that each was evaluated in."""

    run: str
    points: list[dict[str, Any]]
    scores: list[float | None]
    metric: str = "accuracy"
    direction: Literal["max", "min"] = "max"
    states: list[Literal["finished", "stopped", "failed"]] = field(default_factory=list)  # empty: until 0.1
    rounds: list[int] = field(default_factory=list)

    @property
    def best(self) -> int | None:
        """The place of the best candidate that was not stopped early, the first of equal ones; None if there is none."""
        states = self.states or ["finished"] * len(self.scores)
        found = [(score, i) for i, score in enumerate(self.scores) if score is not None and states[i] == "finished"]
        sign = -1 if self.direction == "max" else 1
        return min(found, key=lambda each: (sign * each[0], each[1]))[1] if found else None


@dataclass(frozen=True)
class SweepManifest:
    name: str = ""
    about: str = ""
    runs: dict[str, PlannedRun] = field(default_factory=dict)  # by folder
    searches: list[SearchResult] = field(default_factory=list)
    heatmap: tuple[str, ...] = ()  # the keys of its rows and columns; empty: none

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / SWEEP_MANIFEST, asdict(self))


def read_sweep_manifest(folder: Path) -> SweepManifest:
    """The manifest of the sweep in this folder; an empty one for folders without a sweep."""
    path = folder / SWEEP_MANIFEST
    return _read(path, path.stat().st_mtime_ns) if path.exists() else SweepManifest()


@lru_cache(maxsize=8)
def _read(path: Path, modified: int) -> SweepManifest:
    """Cached, because it is needed for every run of the sweep."""
    try:
        tree = json.loads(path.read_text())
        runs = {name: PlannedRun(**entry) for name, entry in tree["runs"].items()}
        searches = [
            SearchResult(**entry) for entry in tree.get("searches", tree.get("trials", []))
        ]  # trials: until 0.1
        return SweepManifest(tree["name"], tree["about"], runs, searches, tuple(tree.get("heatmap", ())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SweepManifest()  # a file of another program
