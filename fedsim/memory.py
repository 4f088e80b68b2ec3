"""How much memory this process needs at most: since it was last asked, where the system can forget an old peak."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak() -> float:
    """The highest resident memory in MB; without Linux' /proc, since the process began."""
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


def forget() -> None:
    """A new peak begins here: a process serves many clients and runs, and each has its own."""
    with suppress(OSError):
        FORGET.write_text("5")  # proc(5): reset the peak resident set size
