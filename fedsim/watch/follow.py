"""One run folder, read as it grows."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fedsim.errors import ConfigError
from fedsim.report.accumulate import GrowingCosts, GrowingSeries
from fedsim.report.runs import RunResult, without_others
from fedsim.results.curves import KINDS
from fedsim.results.events import EVENTS, Event, parsed
from fedsim.results.folder_lock import LOCK
from fedsim.results.metric import read_metrics
from fedsim.results.record import COPY, MANIFEST, read_manifest

MARK = 200  # bytes before the place of reading that must still be there
QUIET_SECONDS = 60.0  # without an event, after which a run without a process here has stopped
RECENT = 20  # rounds whose time tells how long the rest will take
LISTS = ("clients", "wasted", "in_flight")  # of an event: what is added up and not kept


def read_from(path: Path, place: int, most: int) -> Iterator[tuple[Event, int]]:
    """The events of a file from a place on, of about so many bytes, with the place behind each. Damaged lines, and one that
    is still being written, are left out."""
    with path.open("rb") as file:
        file.seek(place)
        while most > 0 and (line := file.readline()).endswith(b"\n"):
            place, most = place + len(line), most - len(line)
            if (event := parsed(line.decode(errors="replace"))) is not None:
                yield event, place


class GrowingFile:
    """An events file that is read bit by bit. A run that is resumed replaces its file by a shorter one: then reading begins
    again, and `generation` is another number."""

    def __init__(self, path: Path) -> None:
        self.path, self.place, self.generation = path, 0, 0
        self._mark, self._inode = b"", 0

    def read(self, most: int) -> Iterator[Event]:
        """The next events, of about so many bytes."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            if self.place and not self._is_the_same(file):
                self.place, self.generation = 0, self.generation + 1
            self._inode = os.fstat(file.fileno()).st_ino
        for event, place in read_from(self.path, self.place, most):
            self.place = place
            yield event
        with self.path.open("rb") as file:
            file.seek(max(0, self.place - MARK))
            self._mark = file.read(min(MARK, self.place))

    def _is_the_same(self, file: IO[bytes]) -> bool:
        about = os.fstat(file.fileno())
        file.seek(self.place - len(self._mark))
        return about.st_ino == self._inode and file.read(len(self._mark)) == self._mark

    @property
    def unread(self) -> int:
        """Bytes."""
        return max(0, self.path.stat().st_size - self.place) if self.path.exists() else 0


class LiveResult(RunResult):
    """What is known of a run whose events were added up, and not kept."""

    def __init__(self, folder: Path, manifest: dict[str, Any], events: list[Event], **known: Any) -> None:
        super().__init__(folder, manifest, events, known.pop("series"))
        vars(self).update(known)  # in the place of what would be read from the events


class Follower:
    """A run that is read as it grows. Raises ConfigError or an error of the system if the folder holds none."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, GrowingFile(folder / EVENTS)
        self._stamp: tuple[int, int] | None = None
        self._read_manifest()
        self._restart()

    def _read_manifest(self) -> None:
        path = self.folder / MANIFEST
        about = (path if path.exists() else self.folder / COPY).stat()
        if (stamp := (about.st_mtime_ns, about.st_ino)) == self._stamp:
            return
        manifest = read_manifest(self.folder)
        self._only = RunResult(self.folder, manifest, []).planned.clients  # of a sweep that reports on some clients
        self.manifest = without_others(manifest, self._only) if self._only else manifest
        self._stamp = stamp

    def _restart(self) -> None:
        self.generation, self._kept = self.file.generation, list[Event]()
        metric = next(iter(read_metrics(self.manifest).values()))
        self.metric, self._costs = metric.name, GrowingCosts()
        self._series = {kind: GrowingSeries(self.manifest, kind, metric, True) for kind in KINDS}
        self.round, self.failures, self._recent = 0, 0, list[tuple[int, float]]()

    def update(self, most: int) -> bool:
        """Reads about so many bytes more; returns whether anything is new."""
        before = self._stamp, self.file.generation, self.file.place
        self._read_manifest()
        for event in self.file.read(most):
            self._begin_again()
            self._add(without_others(event, self._only) if self._only else event)
        self._begin_again()
        return before != (self._stamp, self.file.generation, self.file.place)

    def _begin_again(self) -> None:
        if self.file.generation != self.generation:
            self._restart()

    def _add(self, event: Event) -> None:
        for series in self._series.values():
            series.add(event)
        self._costs.add(event)
        self._kept.append({key: value for key, value in event.items() if key not in LISTS})
        self.failures += len(event.get("failures", ()))
        if event["kind"] == "step":
            self.round = event["round"]
            self._recent = [*self._recent[-RECENT:], (self.round, event.get("seconds", 0.0))]

    def result(self) -> RunResult:
        """What is known so far."""
        series = {(kind, self.metric): growing.series() for kind, growing in self._series.items()}
        return LiveResult(self.folder, self.manifest, self._kept, series=series, costs=self._costs.costs(), jobs=[])

    @property
    def ids(self) -> list[int]:
        return [client["id"] for client in self.manifest["clients"]]

    @property
    def measured(self) -> bool:
        """Whether a client was evaluated."""
        return any(growing.latest is not None for growing in self._series.values())

    @property
    def latest(self) -> float | None:
        """The latest mean of the main metric, of the personal models if there are such."""
        found = [self._series[kind].latest for kind in ("personal", "global", "local")]
        return next((mean for mean in found if mean is not None), None)

    @property
    def seconds(self) -> float:
        return self._costs.costs().wall

    @property
    def status(self) -> str:
        """That of the manifest; `stopped`: it says `running`, but its process is gone."""
        status = str(self.manifest.get("status"))
        return "stopped" if status == "running" and not self._goes_on else status

    @property
    def _goes_on(self) -> bool:
        """Another machine may write here, whose processes are not known: then what is written tells."""
        path = self.file.path
        return is_alive(self.folder) or (path.exists() and time.time() - path.stat().st_mtime < QUIET_SECONDS)

    @property
    def seconds_left(self) -> float | None:
        """From the time that the last rounds took; None if too few are done."""
        if len(self._recent) < 2:
            return None
        (first, began), (last, ended) = self._recent[0], self._recent[-1]
        return float(self.manifest["config"].get("rounds", last) - last) * (ended - began) / max(1, last - first)


def is_alive(folder: Path) -> bool:
    """Whether the process that works on a run folder is there; True if this cannot be known."""
    try:
        os.kill(int((folder / LOCK).read_text()), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


def follow(folder: Path) -> Follower | None:
    """A follower of the run in this folder; None if it is just beginning, or no run of this program."""
    try:
        return Follower(folder)
    except (ConfigError, OSError, AttributeError, IndexError, KeyError, TypeError, ValueError, StopIteration):
        return None
