"""What a round pays for safety: checks of results, checksums, and waiting until the disk has a file.

`measured` are the seconds of rounds, the reference is what is left of the same seconds without those in the functions below.
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
BLOCKS, ROUNDS = 3, 10  # measurements; rounds of one, which is how often a checkpoint is written by default
Pairs = list[tuple[float, float]]


class Stopwatch:
    """The seconds that are spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return call

    def watch(self) -> None:
        """Checks of results, checksums and syncs, wherever they happen in this process."""
        from fedsim import files
        from fedsim.transport.answer_check import AnswerCheck

        os.fsync = self.timed(os.fsync)
        vars(files)["zlib"] = SimpleNamespace(crc32=self.timed(zlib.crc32))
        vars(files)["sha256"] = self._sha256
        setattr(AnswerCheck, "check", self.timed(AnswerCheck.check))  # noqa: B010

    def _sha256(self, *args: Any) -> Any:
        digest = sha256(*args)
        return SimpleNamespace(update=self.timed(digest.update), hexdigest=self.timed(digest.hexdigest))


class Blocks(Observer):
    """Seconds per round, and without those of the stopwatch, for each block of rounds but the first one."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch, self._before, self.pairs = stopwatch, (0.0, 0.0), Pairs()

    def event(self, event: Mapping[str, Any]) -> bool:
        if event["kind"] == "step" and event["round"] % ROUNDS == 0:
            now = time.perf_counter(), self._stopwatch.seconds
            total, spent = (after - before for after, before in zip(now, self._before, strict=True))
            if event["round"] > ROUNDS:
                self.pairs.append((total / ROUNDS, (total - spent) / ROUNDS))
            self._before = now
        return False


def run() -> list[Row]:
    title = "a round of W1 with checks, checksums and syncs, vs without them"
    return [
        Comparison.of(title, fresh(simulated, ROUNDS), "s", LIMIT),
        Comparison.of(f"{title}; a checkpoint in every round", fresh(simulated, 1), "s"),
        Comparison.of(f"{title}; by messages, nodes keep states", fresh(by_messages), "s", LIMIT),
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
