"""Runs the cells of a sweep on Ray: several side by side, a core each. A worker keeps what it has loaded for its next cell.

A cell's folder says how far it is. A finished cell is skipped, one that was stopped goes on from its checkpoint, one that
failed keeps its reason and is only tried again when asked. Ray's workers end when the sweep does, however it ends.
"""

import fcntl
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import write_text
from fedsim.record import EVENTS, MANIFEST, asked, read_manifest

FAILURE, LOG, LOCK = "failure.txt", "log.txt", ".lock"
LOOK = 0.3  # seconds between two looks at the cells
TAIL = 200_000  # bytes at the end of the events that tell how far a cell is


@dataclass
class Cell:
    """One run of a sweep and where it stands: waiting | running | finished | failed."""

    name: str
    config: RunConfig
    status: str = "waiting"
    before: bool = False  # this call found it as it is

    def __post_init__(self) -> None:
        """A folder that holds another run is not touched."""
        if (self.folder / MANIFEST).exists():
            manifest = read_manifest(self.folder)
            if asked(configs.parse(manifest["config"])) != asked(
                self.config
            ):  # keys that came later have their defaults
                raise ConfigError(
                    f"{self.folder} holds a run of another configuration: choose another --out, or remove it"
                )
            self.status = "finished" if manifest["status"] == "finished" else "waiting"
        if self.failure:
            self.status = "failed"
        self.before = self.status != "waiting"

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    @property
    def failure(self) -> str:
        path = self.folder / FAILURE
        return path.read_text().strip() if path.exists() else ""

    @property
    def done(self) -> bool:
        return self.status in ("finished", "failed")

    def retry(self) -> None:
        if self.status == "failed":
            (self.folder / FAILURE).unlink(missing_ok=True)
            self.status, self.before = "waiting", False

    def progress(self) -> tuple[int, float | None]:
        """The last round, and the last mean personal accuracy."""
        number, accuracy = 0, None
        for event in _tail(self.folder / EVENTS):
            number = max(number, event["round"])
            rows = [row["personal"] for row in event.get("clients", []) if row.get("personal") is not None]
            accuracy = sum(rows) / len(rows) if rows and event["kind"] == "evaluation" else accuracy
        return number, accuracy

    def ended(self, reason: str) -> None:
        """Takes note of how it went; an empty reason is a success."""
        self.status = "failed" if reason else "finished"
        if reason:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / FAILURE, f"{reason}\n")


def run_cells(cells: list[Cell], jobs: int, tell: Callable[[], None], ray_address: str | None = None) -> None:
    """Runs what is waiting, at most `jobs` at a time; `tell` is called again and again while they work. Ray is left
    running for the next call, with what its workers have loaded."""
    queue = [cell for cell in cells if cell.status == "waiting"]
    if not queue:
        return tell()
    import ray

    from fedsim.engine.ray import check_gpus, connect

    if not ray.is_initialized():
        connect(RunConfig(workers=jobs), ray_address)
    running: dict[Any, Cell] = {}
    try:
        for cell in queue:
            check_gpus(cell.config)
        while queue or running:
            while queue and len(running) < jobs:
                cell = queue.pop(0)
                task = ray.remote(work).options(num_cpus=1, num_gpus=cell.config.worker_gpus, max_retries=0)
                running[task.remote(cell.config.flat())] = cell
                cell.status = "running"
            ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK)
            for reference in ready:
                running.pop(reference).ended(_outcome(reference))
            tell()
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


@contextmanager
def workers() -> Iterator[None]:
    """Ray, if cells start it in here, ends here."""
    try:
        yield
    finally:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


def _outcome(reference: Any) -> str:
    """Why a cell failed; nothing if it did not."""
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"its worker died: {str(error).strip().splitlines()[0]}"


def work(values: dict[str, configs.Scalar]) -> str:
    """One cell, in a worker: its clients run in this process, one after the other. Returns what went wrong."""
    from fedsim import client_app
    from fedsim.engine.launch import launch

    config = configs.parse(values)
    folder = Path(config.out)
    with _alone(folder), (folder / LOG).open("a") as log, redirect_stdout(log), redirect_stderr(log):
        begun = (folder / MANIFEST).exists()
        if begun and read_manifest(folder)["status"] == "finished":
            return ""
        try:
            launch(config.replace(resume=begun), "inline")
        except FedsimError as error:
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return f"{type(error).__name__}: {error}; see {folder / LOG}"
        finally:
            client_app.forget()
    return ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until nobody else works in this folder; whoever dies lets go of it. The lock says which process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _tail(path: Path) -> list[dict[str, Any]]:
    """The last events of a run, as far as their lines are whole."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = max(0, path.stat().st_size - TAIL)
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")[1 if start else 0 : -1]
    return [json.loads(line) for line in lines]
