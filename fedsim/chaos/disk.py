"""The file operations of a run, seen from inside its process: one of them can be stopped, fail, or be lost with the power.

Only what changes files counts: opening for writing, writing, syncing, renaming, removing, making folders. Python announces
most of it to audit hooks; writing and syncing are seen by replacing `open` and `os.fsync`, in a process of its own.
"""

import builtins
import errno
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEED_SPACE = ("open", "write", "mkdir")


@dataclass(frozen=True)
class Operation:
    """An operation that is about to happen."""

    kind: str  # open, write, fsync, rename, remove, mkdir, rmdir
    path: Path
    target: Path | None = None  # of a rename
    half: Callable[[], None] = lambda: None  # does a part of it: of a write

    def __str__(self) -> str:
        return f"{self.kind} {self.path.name}" + (f" to {self.target.name}" if self.target else "")


Before = Callable[[int, Operation], object]


class Watch:
    """Calls `before(number, operation)` before each file operation of this process below a folder, from number 1 on."""

    def __init__(self, folder: Path, before: Before) -> None:
        self._root, self._before = str(folder.resolve()), before
        self.count, self.active = 0, True
        self._open, self._fsync = io.open, os.fsync
        io.open = builtins.open = self._watched_open
        os.fsync = self._watched_fsync
        sys.addaudithook(self._audit)

    def note(self, operation: Operation) -> None:
        if self.active and str(operation.path).startswith(self._root):
            self.count += 1
            self.active = False  # what `before` does itself does not count
            try:
                self._before(self.count, operation)
            finally:
                self.active = True

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            if isinstance(args[0], str | os.PathLike) and args[2] & WRITES:
                self.note(Operation("open", _absolute(args[0])))
        elif event == "os.rename":
            self.note(Operation("rename", _absolute(args[0], args[2]), _absolute(args[1], args[3])))
        elif event in ("os.remove", "os.rmdir"):
            self.note(Operation(event[3:], _absolute(args[0], args[1])))
        elif event == "os.mkdir":
            self.note(Operation("mkdir", _absolute(args[0], args[2])))

    def _watched_fsync(self, fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        path = _path_of(number)
        self.note(Operation("fsync", path))
        self._fsync(number)
        if self.active:
            self.synced(path)

    def synced(self, path: Path) -> None:
        """Called after a file or a folder was synced."""

    def _watched_open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not set(mode) & set("wax+"):
            return self._open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = WatchedFile(self, file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)


class WatchedFile(io.FileIO):
    """A file whose writes are noted."""

    def __init__(self, watch: Watch, file: Any, mode: str, closefd: bool, opener: Any) -> None:
        super().__init__(file, mode, closefd, opener)
        self._watch = watch
        self._path = _path_of(file) if isinstance(file, int) else _absolute(file)

    def write(self, data: Any) -> int:
        half = memoryview(data).cast("B")[: memoryview(data).nbytes // 2]
        self._watch.note(Operation("write", self._path, half=lambda: _ignore(io.FileIO.write(self, half))))
        return super().write(data)


def _ignore(_: object) -> None:
    pass


def _absolute(path: Any, folder: int = -1) -> Path:
    """An absolute path; relative ones start in the folder with this descriptor, or in the current one."""
    return Path("/proc/self/fd", str(folder)).resolve() / os.fsdecode(path) if folder >= 0 else Path(path).absolute()


def _path_of(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


# What can happen at an operation


def kill(half: bool = False) -> Callable[[Operation], None]:
    """The process is killed before the operation, or in the middle of it."""

    def do(operation: Operation) -> None:
        if half:
            operation.half()
        os.kill(os.getpid(), signal.SIGKILL)

    return do


def at(number: int, do: Callable[[Operation], None]) -> Before:
    """Does something at the operation with this number."""
    return lambda now, operation: do(operation) if now == number else None


def failing(number: int, code: int, lasting: bool) -> Before:
    """The operation with this number fails; lasting: and every later one that needs space."""

    def before(now: int, operation: Operation) -> None:
        if now == number or (lasting and now > number and operation.kind in NEED_SPACE):
            if now == number and code == errno.ENOSPC:
                operation.half()
            raise OSError(code, os.strerror(code), str(operation.path))

    return before


@dataclass
class Entries:
    """The changes of a folder's entries since it was last synced, each as what undoes it."""

    undo: list[Callable[[Path], None]] = field(default_factory=list)


class PowerLoss(Watch):
    """A machine that loses its power before the operation with this number.

    What was not synced may be there or not: files lose what was written since their last sync, or it is zeros; folders
    lose their last changes, in the reverse order of these, since their own last sync.
    """

    def __init__(self, folder: Path, number: int, rng: Random) -> None:
        self._number, self._rng = number, rng
        self._stash = Path(
            mkdtemp(prefix="unsynced-", dir=folder.parent)
        )  # keeps the files that are replaced or removed
        self._folders: dict[int, Entries] = {}  # by inode
        self._durable: dict[int, bytes] = {}  # by inode: the content of files at their last sync
        self._old = {path.stat().st_ino for path in folder.rglob("*")}
        self._folder = folder
        super().__init__(folder, self._step)

    def synced(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            self._folders.pop(inode, None)
        else:
            self._durable[inode] = self._content(path)

    def _step(self, number: int, operation: Operation) -> None:
        if number == self._number:
            self.lose_power()
        path, target = operation.path, operation.target
        if operation.kind == "open":
            if not path.exists():
                self._changed(path, lambda folder: (folder / path.name).unlink())
            elif (inode := path.stat().st_ino) in self._old and inode not in self._durable:
                self._durable[inode] = self._content(path)
        elif operation.kind == "mkdir" and not path.exists():
            self._changed(path, lambda folder: shutil.rmtree(folder / path.name))
        elif operation.kind == "rmdir":
            self._changed(path, lambda folder: (folder / path.name).mkdir())
        elif operation.kind == "remove":
            kept = self._keep(path)
            self._changed(path, lambda folder: os.link(kept, folder / path.name))
        elif operation.kind == "rename" and target is not None:
            replaced = self._keep(target) if target.is_file() else None

            def undo(folder: Path) -> None:
                os.rename(folder / target.name, folder / path.name)
                if replaced is not None:
                    os.link(replaced, folder / target.name)

            self._changed(target, undo)

    def _changed(self, path: Path, undo: Callable[[Path], None]) -> None:
        if path.parent.exists():
            self._folders.setdefault(path.parent.stat().st_ino, Entries()).undo.append(undo)

    def _keep(self, path: Path) -> Path:
        kept = self._stash / str(len(list(self._stash.iterdir())))
        os.link(path, kept)  # which also keeps its inode from being used again
        return kept

    def _content(self, path: Path) -> bytes:
        with self._open(path, "rb") as file:
            content: bytes = file.read()
        return content

    def lose_power(self) -> None:
        """Leaves the folder as the disk may have it, and ends the process."""
        self.active = False
        for path in reversed(
            [self._folder, *self._folder.rglob("*")]
        ):  # inner folders first: outer ones may be renamed
            if path.is_dir():
                entries = self._folders.get(path.stat().st_ino, Entries()).undo
                for undo in reversed(entries[len(entries) - self._rng.randint(0, len(entries)) :]):
                    with suppress(OSError):  # the operation had failed, or an outer folder is gone
                        undo(path)
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            inode = path.stat().st_ino
            if inode not in self._old or inode in self._durable:
                self._lose_content(path, self._durable.get(inode, b""))
        shutil.rmtree(self._stash)
        os.kill(os.getpid(), signal.SIGKILL)

    def _lose_content(self, path: Path, durable: bytes) -> None:
        content = self._content(path)
        if content == durable:
            return
        kept = durable if content.startswith(durable) else b""
        rest = len(content) - len(kept)
        way = self._rng.choice(("all", "none", "some", "zeros"))
        if way == "none":
            content = durable
        elif way == "some":
            content = content[: len(kept) + self._rng.randint(0, rest)]
        elif way == "zeros":
            content = kept + bytes(rest)
        with self._open(path, "wb") as file:
            file.write(content)
