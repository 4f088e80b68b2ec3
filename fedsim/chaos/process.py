"""Runs in copies of this process, which has loaded torch already: a small run then costs 0.2 s of processor time, not 5."""

import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

PRELOADED = (
    "torch",
    "sklearn.datasets",
    "rich.table",
    "filelock",
    "fedsim.commands.run",
    "fedsim.commands.resume",
    "fedsim.server.app",
    "fedsim.client.app",
    "fedsim.clients.local_sgd",
    "fedsim.engine.launch",
    "fedsim.engine.inline",
    "fedsim.partitions.client_data",
    "fedsim.report.runs",
    "fedsim.report.tables",
)


def preload(*more: str) -> None:
    """Imports what runs need. Nothing else may happen in this process before it is copied: a copy has no threads."""
    for name in (*PRELOADED, *more):
        import_module(name)
    gc.collect()
    gc.freeze()  # so that the garbage collectors of copies leave these objects, and their memory pages, alone


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None  # None: it took too long and was killed; negative: the signal that ended it
    output: str
    seconds: float
    cpu: float  # seconds, with its children that ended before it
    left: tuple[str, ...] = ()  # processes that it had started and that outlived it; they were killed


class Copy:
    """A copy of this process that makes one call and exits with what the call returns. It leads a session of its own."""

    def __init__(self, call: Callable[[], int], log: Path) -> None:
        self._log, self._began = log, time.monotonic()
        self.grace = 0.0  # seconds that processes which it started have to end after it
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _run(call, log)
        self._end = os.pidfd_open(self.pid)

    def wait(self, patience: float) -> Ended:
        """Waits until it ends, at most so many seconds: then it is killed."""
        in_time = self.ended(patience)
        if not in_time:
            self.send(signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        os.close(self._end)
        seconds, code = time.monotonic() - self._began, os.waitstatus_to_exitcode(status)
        deadline = time.monotonic() + self.grace
        while time.monotonic() < deadline and members(self.pid):
            time.sleep(0.1)
        left = kill_session(self.pid)
        output = self._log.read_text(errors="replace") if self._log.exists() else ""
        return Ended(code if in_time else None, output, seconds, usage.ru_utime + usage.ru_stime, left)

    def ended(self, within: float = 0.0) -> bool:
        """Waits until it ends, at most so many seconds; returns whether it has."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(within * 1000))

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _run(call: Callable[[], int], log: Path) -> None:
    code = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = call()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def kill_session(session: int) -> tuple[str, ...]:
    """Kills what is left of a session; returns the command lines."""
    found = {pid: command_of(pid) for pid in members(session)}
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return tuple(found.values())


def members(session: int) -> Sequence[int]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it ended meanwhile
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(folder.name))
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
