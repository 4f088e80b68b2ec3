"""Prepared data and drawn splits on disk: built once by one process, complete or absent, then read by all processes."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedsim.errors import ConfigError
from fedsim.files import new_folder
from fedsim.partitions.split import Array


def root() -> Path:
    """The cache folder: $FEDSIM_CACHE, else ~/.cache/fedsim."""
    return Path(os.environ.get("FEDSIM_CACHE") or Path.home() / ".cache" / "fedsim")


def key(*parts: object) -> str:
    """A short name for what `parts` describe: equal parts, equal name, on every machine."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def digest(array: Array) -> str:
    """The SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build` if no process has done so yet; raises ConfigError if the cache cannot be written."""
    if folder.exists():
        return folder
    from filelock import FileLock  # 13 ms that a client with a prepared copy need not spend

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not folder.exists():
                with new_folder(folder) as unfinished:
                    build(unfinished)
    except OSError as error:
        raise ConfigError(
            f"cannot write to the cache {root()}: {error}. Set FEDSIM_CACHE to a folder that can be written"
        ) from error
    return folder
