"""One process at a time works on a run folder: it holds the lock of the file `.lock` there, which names its process id.

The operating system releases the lock when the process ends, however it ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedsim.errors import ConfigError

LOCK = ".lock"


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Holds the lock of `folder`, which is created if necessary; a thread may take the same lock again inside.

    If another process or thread holds it, raises ConfigError, or with `wait` blocks until it is released.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / LOCK
    lock = FileLock(path, is_singleton=True)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        holder = path.read_text().strip()
        live = f"a live process (pid {holder})" if holder else "a live process"
        raise ConfigError(f"{live} works on {folder}: wait for it, or stop it") from None
    try:
        path.write_text(f"{os.getpid()}\n")
        yield
    finally:
        lock.release()
