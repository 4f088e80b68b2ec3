"""Files that are whole or not there: written beside and renamed into place."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    with _beside(path) as file:
        file.write(text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    with _beside(path) as file:
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
def _beside(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is complete, and is gone when it cannot be."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
