"""What a round pays for safety: checks of results, checksums, and waiting until the disk has a file.

`measured` is the processor time of rounds, and the time in which they waited for the disk. The reference is the same without
what was spent in the functions below.
"""

import os
import time
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

from benchmarks.comparison import Comparison, Row
from benchmarks.contenders import NEVER, data_folder
from benchmarks.process import fresh
from benchmarks.workloads import LR, W1, write
from fedsim.results.observers import Observer

P = ParamSpec("P")
T = TypeVar("T")
LIMIT = 1.03
BLOCKS, ROUNDS = 2, 10  # measurements; rounds of one, which is how often a checkpoint is written by default
Pairs = list[tuple[float, float]]


class Stopwatch:
    """Seconds of processor time in some functions, and seconds in which this process waited for the disk."""

    def __init__(self) -> None:
        self.worked, self.waited = 0.0, 0.0

    def timed(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.worked += time.thread_time() - began

        return call

    def awaited(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            began, worked = time.perf_counter(), self.worked
            try:
                return timed(*args, **kwargs)
            finally:
                self.waited += time.perf_counter() - began - (self.worked - worked)

        timed = self.timed(function)
        return call

    def watch(self) -> None:
        """Checks of results and of the state, checksums and syncs, wherever they happen in this process."""
        from fedsim import files
        from fedsim.server import loop
        from fedsim.transport.answer_check import AnswerCheck
        from fedsim.weights import is_finite

        os.fsync = self.awaited(os.fsync)
        vars(files)["zlib"] = SimpleNamespace(crc32=self.timed(zlib.crc32))
        vars(files)["sha256"] = self._sha256
        vars(loop)["is_finite"] = self.timed(is_finite)
        setattr(AnswerCheck, "check", self.timed(AnswerCheck.check))  # noqa: B010

    def _sha256(self, *args: Any) -> Any:
        digest = sha256(*args)
        return SimpleNamespace(update=self.timed(digest.update), hexdigest=self.timed(digest.hexdigest))


class Blocks(Observer):
    """Seconds per round, and without those of the stopwatch, for each block of rounds but the first one."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch, self._before, self.pairs = stopwatch, (0.0, 0.0, 0.0), Pairs()

    def event(self, event: Mapping[str, Any]) -> bool:
        if event["kind"] == "step" and event["round"] % ROUNDS == 0:
            now = time.process_time(), self._stopwatch.worked, self._stopwatch.waited
            whole, worked, waited = (after - before for after, before in zip(now, self._before, strict=True))
            if event["round"] > ROUNDS:
                self.pairs.append(((whole + waited) / ROUNDS, (whole - worked) / ROUNDS))
            self._before = now
        return False


def run() -> list[Row]:
    title = "W1 with checks, checksums and syncs"
    return [
        Comparison.of(f"{title}, vs without", fresh(simulated, ROUNDS), "s", LIMIT),
        Comparison.of(f"{title}, a checkpoint in every round", fresh(simulated, 1), "s"),
        Comparison.of(f"{title}, SCAFFOLD's states on disks of nodes", fresh(by_messages), "s", LIMIT),
    ]


def settings(home: str, *more: str) -> list[str]:
    write(W1, data_folder())
    rounds = f"rounds={(BLOCKS + 1) * ROUNDS + 1}"
    data = (f"dataset={W1.dataset}", f"data-root={data_folder()}", f"model={W1.model}", f"clients={W1.clients}")
    return [*data, rounds, f"batch-size={W1.batch}", f"lr={LR}", f"eval-every={NEVER}", f"out={home}/run", *more]


def simulated(checkpoint_every: int) -> Pairs:
    """On the inline engine."""
    from fedsim import config as configs
    from fedsim.engine.launch import launch
    from fedsim.results.observers import observed_by

    stopwatch = Stopwatch()
    stopwatch.watch()
    blocks = Blocks(stopwatch)
    with TemporaryDirectory() as home, observed_by([blocks]):
        launch(configs.read(None, settings(home, f"checkpoint-every={checkpoint_every}")), "inline")
    return blocks.pairs


def by_messages() -> Pairs:
    """On a Flower grid in one process, where every client's state is written to a disk after every job."""
    from flwr.app import Context, RecordDict

    from fedsim import config as configs
    from fedsim.chaos.nodes import Nodes
    from fedsim.engine.base import RUN_ID, SERVER_NODE
    from fedsim.results.observers import observed_by
    from fedsim.server.app import app

    stopwatch = Stopwatch()
    stopwatch.watch()
    blocks = Blocks(stopwatch)
    with TemporaryDirectory() as home, observed_by([blocks]):
        config = configs.read(None, settings(home, "algorithm=scaffold"))
        app(Nodes(config, Path(home, "nodes")), Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config.flat())))
    return blocks.pairs
