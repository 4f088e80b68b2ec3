"""What other processes use of the machine, which makes measurements unreliable."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

NOISY = 0.2  # cores in use by others from which on a measurement is marked in the tables
STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Load:
    average: float  # over the last minute; it still contains this benchmark's own measurements
    others: float  # cores in use while the benchmark itself waits; 0 where the system does not tell


def load(seconds: float = 1.0) -> Load:
    """Looks for `seconds` at what runs while the caller does nothing."""
    before, began = _busy(), time.monotonic()
    time.sleep(seconds)
    return Load(os.getloadavg()[0], round((_busy() - before) / (time.monotonic() - began), 2))


def _busy() -> float:
    """Seconds that all cores have worked since the system started (proc(5): user, nice, system of the first line)."""
    if not STAT.exists():
        return 0.0
    user, nice, system = STAT.read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
