"""What related the clients to each other in the course of a run: RUN/matrices/round-000010.npz, one per change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.files import read_npz, write_npz

FOLDER = "matrices"


class Matrices:
    """Keeps named clients x clients matrices in a run folder; without one it keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._last: Mapping[str, NDArray[Any]] = {}

    def keep(self, number: int, found: Mapping[str, NDArray[Any]]) -> None:
        """The matrices after round `number`, written if there are any and they changed."""
        if self._folder is None or not found or _equal(found, self._last):
            return
        self._last = {name: np.array(matrix) for name, matrix in found.items()}
        write_npz(self._folder / FOLDER / f"round-{number:06d}.npz", self._last)

    def rewind(self, done: int) -> None:
        """Forgets what came after round `done`, where a resumed run goes on."""
        for number, path in matrix_files(self._folder).items() if self._folder is not None else ():
            if number > done:
                path.unlink()
            else:
                self._last = read_npz(path)


def matrix_files(folder: Path) -> dict[int, Path]:
    """Round -> the file of the matrices that changed in it, in order."""
    return {int(path.stem.removeprefix("round-")): path for path in sorted((folder / FOLDER).glob("round-*.npz"))}


def _equal(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
