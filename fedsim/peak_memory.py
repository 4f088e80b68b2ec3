"""The highest resident memory of this process; on Linux since the last reset, elsewhere since the process began."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak() -> float:
    """The highest resident memory in MB."""
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


def reset() -> None:
    """Starts a new peak: a process serves many clients and runs, and each has its own."""
    with suppress(OSError):
        CLEAR_REFS.write_text("5")  # proc(5): reset the peak resident set size
