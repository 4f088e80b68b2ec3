"""Matrices between the clients (similarities, mixing weights): RUN/matrices/round-000010.npz, one for each change."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import DamagedError
from fedsim.files import read_npz, sync, write_npz

FOLDER = "matrices"
log = logging.getLogger(__name__)


class Matrices:
    """Writes named clients x clients matrices into a run folder; without a folder it does nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._last: Mapping[str, NDArray[Any]] = {}
        self._unsynced: list[Path] = []
        self._lost: int | None = None  # the round of the last file, if it was damaged

    def keep(self, number: int, found: Mapping[str, NDArray[Any]]) -> None:
        """Writes the matrices after round `number`, if there are any and they have changed."""
        if self._folder is None or not found or _equal(found, self._last):
            return
        self._last = {name: np.array(matrix) for name, matrix in found.items()}
        self._unsynced.append(self._folder / FOLDER / f"round-{number:06d}.npz")
        write_npz(self._unsynced[-1], self._last, durable=False)

    def sync(self) -> None:
        """Waits until the disk has all matrices: a resumed run keeps those before its checkpoint."""
        sync(self._unsynced)
        self._unsynced = []

    def rewind(self, done: int) -> None:
        """Removes the files of rounds after `done`, from which a resumed run continues, and damaged ones. Of these the
        last one can be made again: see `restore`."""
        for number, path in matrix_files(self._folder).items() if self._folder is not None else ():
            if number > done:
                path.unlink()
                continue
            self._lost = None
            try:
                self._last = read_npz(path)
            except DamagedError as error:
                log.warning("%s", error)
                path.unlink()
                self._lost = number

    def restore(self, find: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """`find` makes the matrices of the state from which a run goes on: they have not changed since the last file."""
        if self._lost is not None:
            self.keep(self._lost, find())


def matrix_files(folder: Path) -> dict[int, Path]:
    """Round -> the file with the matrices after it, in order of the rounds."""
    return {int(path.stem.removeprefix("round-")): path for path in sorted((folder / FOLDER).glob("round-*.npz"))}


def _equal(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
