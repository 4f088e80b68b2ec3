"""Arrays that may be larger than memory: files, read and written in blocks of rows."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from math import prod
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np

from fedsim.files import naming
from fedsim.partitions.split import Array

ROWS, BYTES = 4096, 1 << 24  # of a block at most


def rows_of(x: Array, dtype: np.dtype[Any] | None = None) -> int:
    """How many rows of `x` make a block, once they have the type `dtype`."""
    per_row = prod(x.shape[1:]) * (dtype or x.dtype).itemsize
    return max(1, min(ROWS, BYTES // max(1, per_row)))


def blocks(x: Array, dtype: np.dtype[Any] | None = None) -> Iterator[Array]:
    step = rows_of(x, dtype)
    return (x[start : start + step] for start in range(0, len(x), step))


def extent(x: Array) -> tuple[float, float]:
    """The smallest and the largest number; 0 and 0 if there is none. NaN if one of them is."""
    found = [(block.min(), block.max()) for block in blocks(x) if block.size]
    return (float(np.min(found)), float(np.max(found))) if found else (0.0, 0.0)


def first_not_finite(x: Array) -> int | None:
    """The first row with NaN or infinity; None: there is none."""
    done = 0
    for block in blocks(x):
        finite = np.isfinite(block).reshape(len(block), -1).all(1)
        if not finite.all():
            return done + int(np.argmin(finite))
        done += len(block)
    return None


class Scratch:
    """A folder whose files hold arrays while a dataset is prepared; on exit the folder is removed."""

    def __init__(self, parent: Path) -> None:
        self._resources, self._numbers = ExitStack(), count()
        self._folder = Path(self._resources.enter_context(TemporaryDirectory(dir=parent)))

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def file(self) -> Path:
        """A name that no other file has."""
        return self._folder / str(next(self._numbers))

    def stack(self) -> "Stack":
        file = self.file()
        return Stack(file, self._resources.enter_context(file.open("wb")))

    def mapped(self, x: Array, function: Callable[[Array], Array]) -> Array:
        """`function` of every block of `x`, one below the other."""
        stack = self.stack()
        for block in blocks(x) if len(x) else (x,):
            stack.add(function(block))
        return stack.array()

    def npz_member(self, archive: zipfile.ZipFile, name: str) -> Array:
        """An array of an npz file, memory-mapped if it is large; raises ValueError for one of Python objects."""
        with archive.open(f"{name}.npy") as member:
            if archive.getinfo(f"{name}.npy").file_size <= BYTES:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
            file = self.file()
            with naming(file), file.open("wb") as out:
                copyfileobj(member, out, BYTES // 16)  # unpacking takes several times as much
        mapped: Array = np.load(file, mmap_mode="r", allow_pickle=False)
        return mapped


class Stack:
    """Rows of one shape and type that are added block by block, however many there will be."""

    def __init__(self, file: Path, handle: BinaryIO) -> None:
        self._file, self._handle, self._rows, self._like = file, handle, 0, np.empty(0)

    def __len__(self) -> int:
        return self._rows

    def add(self, rows: Array) -> None:
        """Raises ValueError for rows of another shape or type than those before."""
        if not self._rows:
            self._like = rows[:0]
        elif (rows.shape[1:], rows.dtype) != (self._like.shape[1:], self._like.dtype):
            raise ValueError(f"{rows.dtype} of shape {rows.shape[1:]}, not {self._like.dtype} {self._like.shape[1:]}")
        with naming(self._file):
            self._handle.write(np.ascontiguousarray(rows).view(np.uint8).data if rows.size else b"")
        self._rows += len(rows)

    def array(self) -> Array:
        """All rows, memory-mapped; nothing can be added after that."""
        with naming(self._file):
            self._handle.close()
        if not self._rows or not self._file.stat().st_size:
            return np.empty((self._rows, *self._like.shape[1:]), self._like.dtype)
        return np.memmap(self._file, self._like.dtype, "r", shape=(self._rows, *self._like.shape[1:]))
