"""Files that survive kills and power failures, and say so if they were damaged. Everything fedsim keeps is written here.

A file is written under a temporary name beside its path, brought to the disk, renamed, and then its folder is brought to
the disk: after that it is there whatever happens, and before that the old one is. Errors name the file.

An npz file ends with a SHA-256 over all of it (the comment of the zip archive), a JSON text with a CRC-32.
"""

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import DamagedError, StorageError

PUBLIC, PRIVATE = 0o666, 0o600  # file modes, of which the process's umask is taken away
UNFINISHED = ".unfinished"  # ends the names of temporary files and folders
SEAL, EMPTY = b"sha256 ", b"0" * 64  # begins the comment of an npz file; stands for the digest while it is made
CRC = '"crc": "'  # begins the last entry of a JSON text
BLOCK = 1 << 20  # bytes that are read at a time


# Writing


def write_json(path: Path, value: Mapping[str, Any], durable: bool = True) -> None:
    """With a CRC-32 as its last entry, which `read_json` compares."""
    with replacing(path, durable=durable) as file:
        file.write(f"{sealed(value, indent=1)}\n".encode())


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """`mode` holds from the first moment, for the temporary file, too."""
    with replacing(path, mode) as file:
        file.write(content)


def write_npz(path: Path, arrays: Mapping[str, Any], durable: bool = True) -> None:
    """Named arrays with a checksum over the whole file; creates the folder. Without `durable`, `sync` is still to be
    called before anything relies on the file."""
    make_folder(path.parent)
    with replacing(path, durable=durable) as file:
        stream = _Hashed(file)
        with ZipFile(cast(IO[bytes], stream), "w") as archive:
            archive.comment = SEAL + EMPTY
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
        file.seek(-len(EMPTY), os.SEEK_END)
        file.write(stream.digest.hexdigest().encode())


def write_npy(path: Path, blocks: Iterable[NDArray[Any]], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """An array that comes in blocks of its first axis, for `np.load` with memory mapping; inside `new_folder`, which
    brings it to the disk. It is written, not mapped: a full disk is an error here, where a mapped file would crash."""
    with replacing(path, durable=False) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).view(np.uint8).data)


@contextmanager
def replacing(path: Path, mode: int = PUBLIC, durable: bool = True) -> Iterator[IO[bytes]]:
    """A temporary file that replaces `path` at the end of the block, or is removed if the block raises.

    With `durable` the disk has the new file, under its name, when the block has ended. Raises StorageError that names
    `path` if it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with naming(path):
            beside.unlink(missing_ok=True)  # left by a process of the same number that was killed; its mode may differ
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(beside, path)
            if durable:
                sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder that becomes `path` after the block, with everything in it on the disk, or is removed if the block
    raises; for one process at a time."""
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    try:
        with naming(path):
            unfinished.mkdir()
        yield unfinished
        sync(unfinished.iterdir())
        with naming(path):
            os.replace(unfinished, path)
            sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def make_folder(path: Path) -> None:
    """Creates a folder and those above it, so that they are still there after a power failure."""
    if path.is_dir():
        return
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with naming(path):
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def remove_leftovers(folder: Path, *names: str) -> None:
    """Removes the temporary files that killed processes left in a folder: those of files with these names, or all. To be
    called by the one process that writes there."""
    for path in folder.glob(f".*{UNFINISHED}"):
        written = re.fullmatch(rf"\.(.+)\.\d+{re.escape(UNFINISHED)}", path.name)
        if written and (not names or written[1] in names):
            path.unlink(missing_ok=True)


def sync(paths: Iterable[Path]) -> None:
    """Waits until the disk has these files, and their names."""
    listed = list(paths)
    for path in listed:
        with naming(path), path.open("rb") as file:
            os.fsync(file.fileno())
    for folder in {path.parent for path in listed}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Waits until the disk has the names in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of file systems that cannot; their names are safe, or cannot be made so
            raise
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system become a StorageError that names `path`: most of them do not say which file it was."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


class _Hashed:
    """What a file gets, and its digest. It cannot be rewound, so the archive in it is written in one pass."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


# Reading


def read_npz(path: Path, sealed: bool = False) -> dict[str, NDArray[Any]]:
    """What `write_npz` wrote; `sealed`: a file without a checksum is refused as well. Raises DamagedError."""
    check_seal(path, sealed)
    with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
        if strange := [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]:
            raise ValueError(f"{strange[0]} in it is not an array")
        return arrays


def check_seal(path: Path, required: bool = True) -> None:
    """Reads a file of `write_npz` once and compares its checksum; raises DamagedError if one bit is another one."""
    with reading(path), path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size - len(EMPTY)
        file.seek(max(0, length - len(SEAL)))
        if length < len(SEAL) or file.read(len(SEAL)) != SEAL:
            if required:
                raise DamagedError(f"{path} is damaged: it has no checksum at its end")
            return
        file.seek(0)
        digest = sha256()
        while length and (block := file.read(min(BLOCK, length))):
            digest.update(block)
            length -= len(block)
        digest.update(EMPTY)
        if file.read() != digest.hexdigest().encode():
            raise DamagedError(f"{path} is damaged: its checksum is another one")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote, without its checksum; a file of another program has none. Raises DamagedError."""
    with reading(path):
        return unsealed(path.read_text())


def sealed(value: Mapping[str, Any], indent: int | None = None) -> str:
    """A JSON text of an object that is not empty, with its CRC-32 as the last entry."""
    text = json.dumps(value, indent=indent)[:-1].rstrip("\n") + (", " if indent is None else ",\n" + " " * indent)
    return f'{text}{CRC}{zlib.crc32(text.encode()):08x}"' + ("}" if indent is None else "\n}")


def unsealed(text: str) -> dict[str, Any]:
    """The object in a JSON text, without its checksum if it has one; raises ValueError if it is damaged."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    if (crc := value.pop("crc", None)) is not None:
        checked, _, end = text.rpartition(CRC)
        if crc != f"{zlib.crc32(checked.encode()):08x}" or end.split() not in ([crc + '"}'], [crc + '"', "}"]):
            raise ValueError("its checksum is another one")
    return value


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever readers raise for damaged content becomes a DamagedError that names `path`. That a file is missing or may
    not be read is no damage: such an OSError stays."""
    try:
        yield
    except DamagedError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EIO):
            raise
        raise DamagedError(f"{path} is damaged: {error or type(error).__name__}") from error
