"""`log=NAME,...`: follows a run and feeds its trackers, each in a thread of its own.

A tracker that fails never ends a run, nor does it slow it for long: what it shall log waits in a queue, and is tried again
now and then. The first failure is a warning that names the tracker; what it still has not taken some seconds after the end
of the run is lost to it. The run folder has everything.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from fedsim.config import RunConfig
from fedsim.results.observers import Observer, observed_by
from fedsim.sweeps.manifest import read_sweep_manifest
from fedsim.trackers import measures
from fedsim.trackers.base import TrackedRun, Tracker, trackers_of

if TYPE_CHECKING:
    from fedsim.results.record import Record

log = logging.getLogger(__name__)
RETRY_SECONDS = 15.0  # after a failure
FINISH_SECONDS = 60.0  # that the end of a run waits for its trackers
FAILED_SECONDS = 10.0  # for one that has failed before
WAITING = 20_000  # calls that a queue holds; further ones are lost
FIGURE = "curves.png"


class Feed:
    """The queue and the thread of one tracker."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.name, self.tracker = name, tracker
        self._calls: Queue[Callable[[], None]] = Queue(WAITING)
        self._closing = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._work, name=f"log-{name}", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[], None]) -> None:
        try:
            self._calls.put_nowait(call)
        except Full:
            self._warn("it is too slow")

    def close(self, began: float) -> None:
        """Waits until everything is logged, at most so long after the moment `began` of the monotonic clock."""
        self._closing.set()
        self.put(lambda: None)  # wakes the thread
        patience = FAILED_SECONDS if self._failed else FINISH_SECONDS
        self._thread.join(max(0.0, began + patience - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"it did not take everything within {FINISH_SECONDS:g} seconds after the end")

    def _work(self) -> None:
        while not (self._closing.is_set() and self._calls.empty()):
            try:
                call = self._calls.get(timeout=60)
            except Empty:
                continue
            while not self._done(call):
                if self._closing.is_set():
                    return
                self._closing.wait(RETRY_SECONDS)

    def _done(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # whatever the library of a tracker raises
            self._warn(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
            return False
        return True

    def _warn(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            log.warning("log=%s does not work, the run goes on: %s", self.name, why.rstrip(": "))


class RunLog(Observer):
    """Gives the events of a run to trackers."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._feeds = [Feed(name, tracker) for name, tracker in trackers.items()]
        self._kept = dict.fromkeys(trackers, 0)  # the last round that a tracker has from before

    def begin(self, record: "Record") -> None:
        self._record, self._files = record, Files(record)
        run = tracked(record)
        for feed in self._feeds:
            feed.put(partial(self._begin, feed, run))

    def _begin(self, feed: Feed, run: TrackedRun) -> None:
        self._kept[feed.name] = feed.tracker.begin(run)

    def event(self, event: Mapping[str, Any]) -> bool:
        number, found = event["round"], measures.scalars(self._record, event)
        rows = measures.client_rows(self._record) if event["kind"] == "evaluation" else []
        for feed in self._feeds:
            feed.put(partial(self._scalars, feed, number, found))
            if rows and self._takes_table(feed.tracker, number):
                feed.put(partial(feed.tracker.clients, number, rows))
        return False

    def _scalars(self, feed: Feed, number: int, found: Mapping[str, float]) -> None:
        if number >= self._kept[feed.name]:
            feed.tracker.scalars(number, found)

    def _takes_table(self, tracker: Tracker, number: int) -> bool:
        rounds, every = self._record.config.rounds, self._record.config.eval_every
        if tracker.tables is None or number == rounds or self._record.ends_early:
            return True
        return number % (every * max(1, round(rounds / every / tracker.tables))) == 0

    def end(self, record: "Record", status: str) -> None:
        for feed in self._feeds:
            feed.put(partial(self._end, feed.tracker, status))

    def _end(self, tracker: Tracker, status: str) -> None:
        tracker.end(status, self._files.found(status))

    def close(self) -> None:
        began = time.monotonic()
        for feed in self._feeds:
            feed.close(began)


class Files:
    """What a run leaves: its files, and a figure of its curves, which is drawn for the first tracker that asks."""

    def __init__(self, record: "Record") -> None:
        self._record, self._lock = record, threading.Lock()

    def found(self, status: str) -> dict[str, Path]:
        from fedsim.report.figures import metric_figure
        from fedsim.report.runs import RunResult
        from fedsim.results.record import MANIFEST, MODEL, SUMMARY

        folder = self._record.folder
        if folder is None:
            return {}
        with self._lock:
            if status == "finished" and not (folder / FIGURE).exists():
                metric_figure([RunResult.load(folder)], folder / FIGURE)
        paths = {name: folder / name for name in (MANIFEST, SUMMARY, MODEL, FIGURE)}
        return {name: path for name, path in paths.items() if path.exists()}


def tracked(record: "Record") -> TrackedRun:
    """What trackers are told of a run at its beginning."""
    from fedsim.results.record import asked

    folder = (record.folder or Path()).resolve()
    sweep = read_sweep_manifest(folder.parent)
    group = record.config.params("log").group or (sweep.name or folder.parent.name if folder.name in sweep.runs else "")
    config = {**asked(record.config), "engine": record.engine}
    done = record.run.resumed[-1] if record.run.resumed else None
    names, columns = measures.names(record), measures.columns(record)
    return TrackedRun(record.run.id, folder.name, group, folder, config, record.config.rounds, names, columns, done)


@contextmanager
def logged(config: RunConfig) -> Iterator[None]:
    """Logs the run that happens inside, if it asks for that. Raises ConfigError if a tracker cannot be used here."""
    if not config.log_names:
        yield
        return
    following = RunLog(trackers_of(config))
    try:
        with observed_by([following]):
            yield
    finally:
        following.close()
