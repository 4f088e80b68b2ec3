"""What every peer's program reads from its command line and prints at the end. Needs numpy alone."""

import json
import sys
from itertools import pairwise
from pathlib import Path

from benchmarks.workloads import WORKLOADS, Workload

WARMUP = 1  # rounds before the timed ones


def arguments() -> tuple[Workload, Path, int]:
    """The workload, its data, and the number of rounds to run, warm-up included."""
    name, path, rounds = sys.argv[1:4]
    return WORKLOADS[name], Path(path), int(rounds) + WARMUP


def report(seconds: list[float]) -> None:
    """Prints the seconds of all rounds, without the warm-up."""
    print(json.dumps({"seconds": seconds[WARMUP:]}), flush=True)


def report_moments(moments: list[float]) -> None:
    """The same from the time before the first round and the times at which rounds ended."""
    report([after - before for before, after in pairwise(moments)])
