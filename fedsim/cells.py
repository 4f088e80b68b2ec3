"""Runs the cells of a sweep: several side by side, each in a process of its own; whatever dies, the others go on.

A cell's folder says how far it is. A finished cell is skipped, one that was stopped goes on from its checkpoint, one that
failed keeps its reason and is only tried again when asked.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsim.config import RunConfig, parse
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import write_text
from fedsim.record import EVENTS, MANIFEST, asked, read_manifest

FAILURE = "failure.txt"
LOOK = 0.2  # seconds between two looks at the cells


@dataclass
class Cell:
    """One run of a sweep and where it stands."""

    name: str
    config: RunConfig
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    @property
    def status(self) -> str:
        """waiting | running | finished | failed"""
        if self.process is not None:
            return "running"
        if (self.folder / FAILURE).exists():
            return "failed"
        done = (self.folder / MANIFEST).exists() and read_manifest(self.folder)["status"] == "finished"
        return "finished" if done else "waiting"

    @property
    def progress(self) -> tuple[int, float | None]:
        """The last round, and the last mean personal accuracy."""
        number, accuracy = 0, None
        for event in _tail(self.folder / EVENTS):
            number = max(number, event["round"])
            rows = [row["personal"] for row in event.get("clients", []) if row.get("personal") is not None]
            accuracy = sum(rows) / len(rows) if rows and event["kind"] == "evaluation" else accuracy
        return number, accuracy

    def check(self) -> None:
        """A folder that holds another run is not touched."""
        if not (self.folder / MANIFEST).exists():
            return
        before = parse(read_manifest(self.folder)["config"])  # keys that came later have their defaults
        if asked(before) != asked(self.config):
            raise ConfigError(f"{self.folder} holds a run of another configuration: choose another --out, or remove it")

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / FAILURE).unlink(missing_ok=True)
        config = self.config.replace(resume=(self.folder / MANIFEST).exists())
        with (self.folder / "log.txt").open("ab") as log:
            command = [sys.executable, "-m", "fedsim.cells", json.dumps(config.flat())]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def finish(self) -> None:
        """Takes note of a process that ended."""
        assert self.process is not None
        code, self.process = self.process.wait(), None
        if code != 0 and not (self.folder / FAILURE).exists():
            write_text(self.folder / FAILURE, f"its process ended with code {code}; see {self.folder / 'log.txt'}\n")

    @property
    def failure(self) -> str:
        path = self.folder / FAILURE
        return path.read_text().strip() if path.exists() else ""


def run_cells(cells: list[Cell], jobs: int, tell: Callable[[], None]) -> None:
    """Runs what is waiting, `jobs` at a time; `tell` is called again and again while they work."""
    queue = [cell for cell in cells if cell.status == "waiting"]
    running: list[Cell] = []
    with _stopping(cells):
        while queue or running:
            while queue and len(running) < jobs:
                running.append(queue.pop(0))
                running[-1].start()
            for cell in [c for c in running if c.process is not None and c.process.poll() is not None]:
                cell.finish()
                running.remove(cell)
            tell()
            time.sleep(LOOK)
    tell()


@contextmanager
def _stopping(cells: list[Cell]) -> Iterator[None]:
    """Whatever ends the sweep ends its cells; they go on from their checkpoints the next time."""
    try:
        yield
    finally:
        for cell in cells:
            if cell.process is not None:
                cell.process.terminate()
                cell.process.wait()
                cell.process = None


def _tail(path: Path) -> list[dict[str, Any]]:
    """The last events of a run."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 200_000))
        lines = file.read().decode(errors="replace").split("\n")[1 if file.tell() > 200_000 else 0 : -1]
    return [json.loads(line) for line in lines]


def main(text: str) -> int:
    """The process of one cell: its clients run in it, one after the other."""
    from fedsim.engine.launch import launch

    config = parse(json.loads(text))
    try:
        launch(config, "inline")
    except FedsimError as error:
        write_text(Path(config.out) / FAILURE, f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
