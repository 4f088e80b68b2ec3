"""Things worth keeping between processes: built by one process, there whole or not at all, then read by all."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError


def home() -> Path:
    return Path(os.environ.get("FEDSIM_CACHE") or Path.home() / ".cache" / "fedsim")


def key(*parts: object) -> str:
    """A short name for what `parts` describe: equal parts, equal name, on every machine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()


def once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build` if no process has done so yet."""
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)  # of a process that died
                unfinished.mkdir()
                build(unfinished)
                os.replace(unfinished, folder)
    except OSError as error:
        raise ConfigError(
            f"cannot write to the cache {home()}: {error}. Set FEDSIM_CACHE to a folder that can be written"
        ) from error
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Only one process at a time; the system frees the lock of a process that dies."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
