"""Runs the cells of a sweep on Ray, several in parallel with one core each. Workers keep loaded data for further cells.

The folder of a cell holds its state: a finished cell is skipped, an interrupted one continues from its checkpoint, and
a failed one keeps the reason in failure.txt and is repeated only on request. Ray's workers end together with the sweep.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedsim import config as configs
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import write_text
from fedsim.results.events import EVENTS, parsed
from fedsim.results.folder_lock import locked
from fedsim.results.metric import Metric, read_metrics
from fedsim.results.observers import Observer, observed_by
from fedsim.results.record import asked, holds_run, read_manifest
from fedsim.trackers.base import trackers_of

log = logging.getLogger(__name__)
FAILURE, LOG = "failure.txt", "log.txt"
POLL_SECONDS = 0.3  # between two calls of `on_progress`
TAIL = 200_000  # bytes at the end of events.jsonl that are read for the progress of a cell


@dataclass
class Cell:
    """One run of a sweep and its status; `observer` follows it where it runs. Raises ConfigError if its folder holds a
    run of another configuration."""

    name: str
    config: RunConfig
    status: Literal["waiting", "running", "finished", "failed"] = "waiting"
    was_done: bool = False  # it had finished or failed before this sweep started
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if holds_run(self.folder):
            manifest = read_manifest(self.folder)
            before = configs.parse(manifest["config"])  # keys that a former version did not have get their defaults
            if asked(before) != asked(self.config):
                raise ConfigError(
                    f"{self.folder} holds a run of another configuration: choose another --out, or remove it"
                )
            self.status = "finished" if manifest["status"] == "finished" else "waiting"
        if self.failure:
            self.status = "failed"
        self.was_done = self.status != "waiting"

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    @property
    def failure(self) -> str:
        """Why the cell failed; empty if it did not."""
        path = self.folder / FAILURE
        return path.read_text().strip() if path.exists() else ""

    @property
    def done(self) -> bool:
        return self.status in ("finished", "failed")

    @property
    def metric(self) -> Metric:
        """The main metric of the run."""
        manifest = read_manifest(self.folder) if holds_run(self.folder) else {}
        return next(iter(read_metrics(manifest).values()))

    def retry(self) -> None:
        """Lets a failed cell run again."""
        if self.status == "failed":
            (self.folder / FAILURE).unlink(missing_ok=True)
            self.status, self.was_done = "waiting", False

    def progress(self) -> tuple[int, float | None]:
        """The last round, and the last mean of the main metric over the personal models."""
        number, mean = 0, None
        for event in _last_events(self.folder / EVENTS):
            number = max(number, event["round"])
            rows = [row["personal"] for row in event.get("clients", []) if row.get("personal") is not None]
            mean = sum(rows) / len(rows) if rows and event["kind"] == "evaluation" else mean
        return number, mean

    def finish(self, failure: str = "") -> None:
        """Sets the status to finished, or to failed for this reason, which is written to the folder."""
        self.status = "failed" if failure else "finished"
        if failure:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / FAILURE, f"{failure}\n")


def run_cells(
    cells: list[Cell],
    jobs: int,
    on_progress: Callable[[], None],
    ray_address: str | None = None,
    until: float | None = None,
) -> None:
    """Runs the waiting cells, at most `jobs` in parallel, and calls `on_progress` repeatedly; after the moment `until` (of
    time.monotonic) none begins. Ray stays up for the next call, so that its workers keep the data they loaded: see
    `ray_session`."""
    queue = [cell for cell in cells if cell.status == "waiting"]
    if not queue:
        return on_progress()
    for cell in queue:
        trackers_of(cell.config)  # refused here, if one is missing
    import ray

    from fedsim.engine.ray_session import check_gpus, join

    join(jobs, ray_address)
    running: dict[Any, Cell] = {}
    try:
        for cell in queue:
            check_gpus(cell.config)
        while queue or running:
            if until is not None and time.monotonic() > until:
                queue.clear()
            while queue and len(running) < jobs:
                cell = queue.pop(0)
                task = ray.remote(run_cell).options(num_cpus=1, num_gpus=cell.config.worker_gpus, max_retries=0)
                running[task.remote(cell.config.flat(), registry.added(), cell.observer)] = cell
                cell.status = "running"
            ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
            for reference in ready:
                running.pop(reference).finish(_failure(reference))
            on_progress()
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


@contextmanager
def ray_session() -> Iterator[None]:
    """Stops Ray at the end, if `run_cells` started it inside, and at the beginning if an earlier run of this process left
    it: its workers hold all cores."""
    if "ray" in sys.modules:
        from fedsim.engine.ray_session import leave, started_here

        if started_here():
            leave()
    try:
        yield
    finally:
        if "ray" in sys.modules:
            from fedsim.engine.ray_session import leave

            leave()


def _failure(reference: Any) -> str:
    """Why the cell of a Ray task failed; empty if it succeeded."""
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"its worker died: {str(error).strip().splitlines()[0]}"


def run_cell(
    values: dict[str, configs.Scalar], objects: Mapping[tuple[str, str], Any], observer: Observer | None = None
) -> str:
    """Runs one cell in this process, with the inline engine; called in a Ray worker. Output and log records go to
    log.txt in the folder of the cell. Returns the reason of a failure, or an empty text. `objects`: see
    `registry.added`."""
    from fedsim.client.jobs import forget
    from fedsim.engine.launch import launch

    for (kind, name), thing in objects.items():
        registry.add(kind, name, thing)
    config = configs.parse(values)
    folder = Path(config.out)
    with locked(folder, wait=True), (folder / LOG).open("a") as file, redirect_stdout(file), redirect_stderr(file):
        started = holds_run(folder)
        if started and read_manifest(folder)["status"] == "finished":
            return ""
        try:
            with observed_by([observer] if observer else []):
                launch(config.replace(resume=started), "inline")
        except FedsimError as error:
            return str(error)
        except Exception as error:
            log.exception("the run failed")
            return f"{type(error).__name__}: {error}; see {folder / LOG}"
        finally:
            forget()
    return ""


def _last_events(path: Path) -> list[dict[str, Any]]:
    """The events in the last TAIL bytes of the file that are complete lines and not damaged."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = max(0, path.stat().st_size - TAIL)
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines(keepends=True)[1 if start else 0 :]
    return [event for line in lines if (event := parsed(line)) is not None]
