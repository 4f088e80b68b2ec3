"""working.npy in the folder of a run that is going on: which clients have a training job, for whoever watches the run.

It is mapped into memory: an entry costs no call of the system.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim.files import write_npy

FILE = "working.npy"
IDLE = -1.0


class Working:
    """A row per client: the round that its job started from (IDLE: it has none), and since when, in Unix seconds."""

    def __init__(self, folder: Path | None, clients: Sequence[int]) -> None:
        self._row_of = {client: row for row, client in enumerate(clients)}
        rows = np.array([[IDLE, 0.0]] * len(clients))
        self._path = None if folder is None else folder / FILE
        self._rows: NDArray[np.float64] = rows
        if self._path is not None:
            write_npy(self._path, [rows], rows.dtype, rows.shape)
            self._rows = np.load(self._path, mmap_mode="r+")

    def sent(self, jobs: Iterable[tuple[int, int]]) -> None:
        """Clients got jobs that start from these rounds."""
        for client, step in jobs:
            if client in self._row_of:
                self._rows[self._row_of[client]] = step, time.time()

    def ended(self, client: int) -> None:
        if client in self._row_of:
            self._rows[self._row_of[client]] = IDLE, time.time()

    def close(self) -> None:
        """The run has ended, and nobody works."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def read_working(folder: Path) -> list[tuple[int, int, float]]:
    """The row of each client that has a job, the round it started from, and since when, in Unix seconds."""
    try:
        rows = np.load(folder / FILE)
    except (OSError, ValueError, EOFError):
        return []  # the run does not go on, or is just beginning
    return [(int(row), int(rows[row, 0]), float(rows[row, 1])) for row in np.flatnonzero(rows[:, 0] != IDLE)]
