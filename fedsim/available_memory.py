"""How much memory this process can still take."""

import os
from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
# The limit of a container and what it uses of it: control groups, version 2 and 1.
LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def available() -> int:
    """Bytes: what Linux counts as available, within the limit of the container; elsewhere the whole memory."""
    found = [_of_machine()]
    for limit, used in LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max" for no limit
            found.append(int(limit.read_text()) - int(used.read_text()))
    return max(0, min(found))


def _of_machine() -> int:
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
