"""Atomic writes: files and folders are written under a temporary name beside their path and then renamed."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

PUBLIC, PRIVATE = 0o666, 0o600  # file modes, of which the process's umask is taken away


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    with _beside(path) as file:
        file.write(text.encode())


def write_bytes(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Also waits until the disk has the content. `mode` holds from the first moment, for the temporary file, too."""
    with _beside(path, mode) as file:
        file.write(content)
        _to_disk(file)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path) as file:
        np.savez(file, **arrays)
        _to_disk(file)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        return {name: content[name] for name in content.files}


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder that is renamed to `path` after the block, or removed if it raises; for one process at a time."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir()
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextmanager
def _beside(path: Path, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """A temporary file that replaces `path` at the end of the block, or is removed if the block raises."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)  # left by a process of the same number that was killed; its mode may be another
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
