"""10,000 steps in virtual time with a tiny model: memory, files, threads and time per step must stay as they are.

FedBuff with stragglers and a checkpoint every 100 steps, in one process. The reference is the second tenth of the run, what
is measured is the last tenth. Time is processor time.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.comparison import Comparison, Row
from benchmarks.process import fresh
from fedsim.results.observers import Observer

STEPS, EVERY = 10_000, 100  # steps; steps between two samples
SETTINGS = (
    "algorithm=fedbuff",
    "stragglers=speed",
    "model=mlr",
    "clients=10",
    "local-steps=1",
    "batch-size=16",
    "eval-every=10",
    f"checkpoint-every={EVERY}",
)
LIMIT, TIME_LIMIT = 1.1, 1.5  # time depends on what else the machine does


class Sample(NamedTuple):
    """What the process uses after some step."""

    memory: float  # MB in RAM
    files: int  # open ones
    threads: int
    seconds: float  # of processor time for a step, since the last sample


class Sampler(Observer):
    def __init__(self) -> None:
        self.samples, self._before = list[Sample](), time.process_time()

    def event(self, event: Mapping[str, Any]) -> bool:
        if event["kind"] == "step" and event["round"] % EVERY == 0:
            now = time.process_time()
            self.samples.append(self._sample((now - self._before) / EVERY))
            self._before = now
        return False

    @staticmethod
    def _sample(seconds: float) -> Sample:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return Sample(memory, len(os.listdir("/proc/self/fd")), threading.active_count(), seconds)


def run() -> list[Row]:
    return rows(fresh(samples, STEPS))


def samples(steps: int) -> list[Sample]:
    """Of a run of so many steps."""
    from fedsim import config as configs
    from fedsim.engine.launch import launch
    from fedsim.results.observers import observed_by

    sampler = Sampler()
    with TemporaryDirectory() as home, observed_by([sampler]):
        launch(configs.read(None, [*SETTINGS, f"rounds={steps}", f"out={home}/run"]), "inline")
    return sampler.samples


def rows(found: list[Sample]) -> list[Row]:
    tenth = len(found) // 10
    first, last = found[tenth : 2 * tenth], found[-tenth:]

    def row(what: str, unit: str, value: Callable[[Sample], float], limit: float) -> Comparison:
        name = f"{what} in the last tenth of {len(found) * EVERY:,} steps, vs the second"
        return Comparison(name, median(map(value, last)), median(map(value, first)), unit, limit)

    return [
        row("memory", "MB", lambda each: each.memory, LIMIT),
        row("open files", "", lambda each: each.files, 1.0),
        row("threads", "", lambda each: each.threads, 1.0),
        row("processor time of a step", "ms", lambda each: 1000 * each.seconds, TIME_LIMIT),
    ]
