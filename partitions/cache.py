"""Prepared data and drawn splits on disk: built once by one process, complete or absent, then read by all processes.

Every folder lists its files with their sizes and SHA-256 (`contents.json`). Reading gigabytes at every start would be too
slow, so the digests are compared when a file is not the one that was compared last (another inode, size or time), and
otherwise once a day (`verified.json` remembers it). A folder that does not hold what was written is built again.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedsim.errors import ConfigError, DamagedError, StorageError
from fedsim.files import make_folder, naming, new_folder, read_json, write_json
from fedsim.partitions.split import Array

CONTENTS, VERIFIED = "contents.json", "verified.json"
RECHECK = 86_400  # seconds after which unchanged files are read again: disks forget
log = logging.getLogger(__name__)


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
    """`folder`, filled by `build` if no process has done so yet, or if it was damaged since.

    Raises ConfigError if the cache cannot be written.
    """
    if folder.exists() and not damage(folder):
        return folder
    try:
        with _locked(folder):
            if folder.exists() and (problem := damage(folder)):
                log.warning("%s: it is made again", problem)
                with naming(folder):
                    shutil.rmtree(folder)
            if not folder.exists():
                with new_folder(folder) as unfinished:
                    build(unfinished)
                    _list_contents(unfinished, folder.name)
    except StorageError as error:
        raise ConfigError(
            f"{error}. It belongs to the cache {root()}: make room there, or set FEDSIM_CACHE to a folder that can be "
            "written"
        ) from error
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """For one process at a time."""
    from filelock import FileLock  # 13 ms that a client with a prepared copy need not spend

    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    with naming(folder):
        make_folder(folder.parent)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def built(folder: Path) -> int:
    """When a folder was built, which tells it from one that was in its place before."""
    return (folder / CONTENTS).stat().st_mtime_ns


def damage(folder: Path) -> str:
    """What is wrong with a folder of the cache; empty if it holds what was written."""
    if not (folder / CONTENTS).exists():
        return f"{folder} has no {CONTENTS}"
    try:
        contents = read_json(folder / CONTENTS)
        held, files = contents["folder"], {name: (int(size), str(digest)) for name, size, digest in contents["files"]}
        stamps = {name: _stamp(folder / name) for name in files}
    except (DamagedError, OSError, KeyError, TypeError, ValueError) as error:
        return f"{folder} is damaged: {error}"
    if held != folder.name:
        return f"{folder} is damaged: it holds {held}"
    if strange := {path.name for path in folder.glob("*.npy")} - files.keys():
        return f"{folder} is damaged: {strange.pop()} does not belong there"
    for name, (size, _) in files.items():
        if stamps[name][0] != size:
            return f"{folder / name} is damaged: it has {stamps[name][0]} bytes instead of {size}"
    if not _was_verified(folder, stamps):
        for name, (_, expected) in files.items():
            if _file_digest(folder / name) != expected:
                return f"{folder / name} is damaged: its SHA-256 is another one"
        _remember(folder, stamps)
    return ""


Stamps = dict[str, list[int]]


def _stamp(path: Path) -> list[int]:
    """Changes whenever somebody writes to a file or replaces it; the size comes first."""
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _list_contents(folder: Path, name: str) -> None:
    paths = sorted(folder.iterdir())
    files = [[path.name, path.stat().st_size, _file_digest(path)] for path in paths]
    write_json(folder / CONTENTS, {"folder": name, "files": files}, durable=False)
    _remember(folder, {path.name: _stamp(path) for path in paths})


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_verified: dict[Path, Stamps] = {}  # by this process


def _was_verified(folder: Path, stamps: Stamps) -> bool:
    if _verified.get(folder) == stamps:
        return True
    try:
        known = read_json(folder / VERIFIED)
    except (DamagedError, OSError):
        return False
    moment = known.get("time")
    if known.get("files") != stamps or not isinstance(moment, float) or not 0 <= time.time() - moment < RECHECK:
        return False
    _verified[folder] = stamps
    return True


def _remember(folder: Path, stamps: Stamps) -> None:
    """For this process, and for others unless the cache belongs to somebody else."""
    _verified[folder] = stamps
    if os.access(folder, os.W_OK):
        write_json(folder / VERIFIED, {"time": time.time(), "files": stamps}, durable=False)
