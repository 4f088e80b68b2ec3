"""What the live page is told: the runs below a folder, and what is new since a browser asked last."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fedsim.errors import ConfigError
from fedsim.report.collection import RunCollection
from fedsim.report.entries import entry
from fedsim.report.page import ALL_ENTRIES, Budget, about, overview, progress, relations
from fedsim.results.record import holds_run
from fedsim.results.working import read_working
from fedsim.sweeps.manifest import read_sweep_manifest
from fedsim.watch.follow import Follower, follow, read_from

LOOK_SECONDS = 2.0  # between two searches for new runs
READ_SECONDS = 0.4  # between two readings of all runs
AT_ONCE = 4_000_000  # bytes of events that are read for one answer, and of the run that is shown a fourth of it
DEPTH = 3  # of the run folders below the one that is watched
RELATION_SECONDS = 10.0  # between two readings of the matrices of a growing run
SHARE = 4.0  # comparing the settings may take one part in so many of the time
Json = dict[str, Any]


class Watcher:
    """The runs in a folder, which is that of a run, of a sweep, or one above them. Safe for several threads."""

    def __init__(self, root: Path, federation: Callable[[], Json | None] = lambda: None) -> None:
        self.root, self._federation = root.resolve(), federation
        self._runs: dict[Path, Follower] = {}
        self._lock = Lock()
        self._looked = self._read = self._compared = float("-inf")
        self._compared_for = 0.0  # seconds that the last comparison took
        self._overview: Json = {}
        self._version, self._stale = 0, True  # of the overview, and whether it is older than what was read
        self._relations: dict[Path, tuple[float, str, Json]] = {}

    def changes(self, known: Json) -> Json:
        """What is new to a browser. `known`: what it says it has: `version` of the overview; `run`, `generation` and `after`
        (a place in the events) of the run that it shows, and the version `fixed` of what hardly changes of that run."""
        with self._lock:
            more = self._update()
            answer: Json = {"now": time.time(), "root": str(self.root), "version": self._version, "more": more}
            answer |= {"runs": [self._row(each) for each in self._runs.values()], "waiting": self._waiting()}
            if known.get("version") != self._version:
                answer["overview"] = self._overview
            if (follower := self._chosen(str(known.get("run", "")))) is not None:
                answer["run"] = self._changes_of(follower, known)
                answer["more"] = more or answer["run"]["more"]
            if (federation := self._federation()) is not None:
                answer["federation"] = federation
            return answer

    # All runs

    def _update(self) -> bool:
        """Looks for new runs and reads what was written; returns whether there is more to read."""
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._look()
            self._looked = time.monotonic()
        if now - self._read > READ_SECONDS or self._behind:
            left = AT_ONCE
            for follower in self._runs.values():
                before = follower.file.place
                self._stale |= left > 0 and follower.update(left)
                left -= max(0, follower.file.place - before)
            self._read = time.monotonic()
        if self._stale and time.monotonic() - self._compared > SHARE * self._compared_for:
            self._compare()
        return self._behind

    @property
    def _behind(self) -> bool:
        return any(follower.file.unread > AT_ONCE for follower in self._runs.values())

    def _look(self) -> None:
        found = list(_run_folders(self.root, DEPTH))
        for folder in found:
            if folder not in self._runs and (follower := follow(folder)) is not None:
                self._runs[folder] = follower
                self._stale = True
        for folder in [folder for folder in self._runs if folder not in found]:
            del self._runs[folder]
            self._stale = True

    def _compare(self) -> None:
        began, sweep = time.monotonic(), read_sweep_manifest(self.root)
        results = [follower.result() for follower in self._runs.values() if follower.measured]
        try:
            found = RunCollection(results, searches=sweep.searches, heatmap=sweep.heatmap)
            self._overview = overview(found) if results else {}
        except ConfigError as problem:  # the runs have different objectives
            self._overview = {"problem": str(problem)}
        self._overview["names"] = [self.name(result.folder) for result in results]
        self._version, self._stale, self._compared = self._version + 1, False, time.monotonic()
        self._compared_for = self._compared - began

    def name(self, folder: Path) -> str:
        return folder.name if folder == self.root else str(folder.relative_to(self.root))

    def _row(self, run: Follower) -> Json:
        """One run in the list."""
        status, left = run.status, run.seconds_left
        return {
            "name": self.name(run.folder),
            "status": status,
            "round": run.round,
            "rounds": run.manifest["config"].get("rounds"),
            "latest": run.latest,
            "metric": run.metric,
            "seconds": round(run.seconds, 1),
            "left": round(left, 1) if status == "running" and left is not None else None,
            "failures": run.failures,
        }

    def _waiting(self) -> list[str]:
        """Planned runs of the sweep that have no folder yet."""
        return [name for name in read_sweep_manifest(self.root).runs if self.root / name not in self._runs]

    # One run

    def _chosen(self, name: str) -> Follower | None:
        """The run of this name; else one that goes on, else the first."""
        runs = list(self._runs.values())
        named = next((each for each in runs if self.name(each.folder) == name), None)
        running = next((each for each in runs if each.status == "running"), None)
        return named or running or (runs[0] if runs else None)

    def _changes_of(self, run: Follower, known: Mapping[str, Any]) -> Json:
        name, generation = self.name(run.folder), run.file.generation
        same = known.get("run") == name and known.get("generation") == generation
        start = int(known.get("after", 0)) if same else 0
        read = list(read_from(run.file.path, start, AT_ONCE // 4)) if run.file.path.exists() else []
        found = [each for event, _ in read if (each := entry(event, run.ids, run.metric)) is not None]
        place = read[-1][1] if read else start
        result, status, (version, related) = run.result(), run.status, self._related(run)
        answer: Json = {
            "name": name,
            "generation": generation,
            "from": start,
            "after": place,
            "more": place < run.file.place,
            "entries": found,
            "working": read_working(run.folder) if status == "running" else [],
            "progress": {**progress(result), "status": status},
        }
        if not same or known.get("fixed") != version:
            shared: dict[str, int] = {}
            fixed = {**about(result, shared), "name": name, **related}
            answer["fixed"] = {**fixed, "shared": [json.loads(text) for text in shared], "version": version}
        return answer

    def _related(self, run: Follower) -> tuple[str, Json]:
        """Matrices and clusters with a version; read again when the run has gone on, but not often."""
        when, state, found = self._relations.get(run.folder, (float("-inf"), "", {}))
        now = f"{run.file.generation}-{run.round}-{run.status}"
        if state != now and time.monotonic() - when > RELATION_SECONDS:
            when, state, found = time.monotonic(), now, relations(run.result(), Budget(ALL_ENTRIES))
            self._relations[run.folder] = when, state, found
        return state, found


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    """The run folders at or below a folder, in the order of their names."""
    if holds_run(folder):
        yield folder
    elif depth:
        for each in sorted(folder.iterdir()):
            if each.is_dir() and not each.name.startswith("."):
                yield from _run_folders(each, depth - 1)
