"""W1, W2, W3: seconds of a round of training, of fedsim and (with `peers`) of other frameworks, as ratios to A.

A (benchmarks/pytorch_loop.py), fedsim and the peers take turns, each in a new process; medians over the turns.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.comparison import Comparison, NotRun, Row
from benchmarks.contenders import data_folder, fedsim, has_key
from benchmarks.load import Load, load
from benchmarks.process import QUIET, fresh
from benchmarks.pytorch_loop import pytorch_loop
from benchmarks.workloads import REFERENCE, Workload, write

ROOT = Path(__file__).parent.parent
PFL = "pfl-research, 2 processes"
LIMITS = {"W1": 1.05, "W2": 0.5, "W3": 1.08}
OFF_LIMIT = 1.3  # of W2 with vectorize=off
TIMEOUT = 900.0
Measure = Callable[[Workload], float]  # seconds of a round

# Peers: the environment below .venv-peers (empty: fedsim's own), the module below benchmarks.peers, its further arguments
PEERS = {
    PFL: ("pfl", "pfl_research", ()),
    "FedJAX": ("fedjax", "fedjax_loop", ()),
    "FLGo": ("flgo", "flgo_loop", ()),
    "stock Flower": ("", "flower_simulation", ("default",)),
    "stock Flower, tuned": ("", "flower_simulation", ("tuned",)),
}
SLOW = {"stock Flower", "stock Flower, tuned"}  # one turn of one round: on W2 it takes them half a minute


class CannotRun(Exception):
    """A peer that is not installed or whose program failed."""


def run(workload: Workload, turns: int, peers: bool, end: float = inf) -> list[Row]:
    """The rows of one workload. A peer that failed once is not tried again; slow ones have one turn. No turn but the first
    begins after `end` (monotonic clock)."""
    programs: dict[str, tuple[Measure, float | None]] = {REFERENCE: (_reference, None), **_fedsim(workload)}
    programs |= {name: (_peer(name), None) for name in PEERS if peers}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    reasons: dict[str, str] = {}
    loads: dict[str, list[Load]] = {name: [] for name in programs}
    for turn in range(turns):
        if turn and time.monotonic() > end:
            break
        for name, (measure, _) in programs.items():
            if name not in reasons and not (turn and name in SLOW):
                loads[name].append(load())
                try:
                    seconds[name].append(measure(workload))
                except CannotRun as error:
                    reasons[name] = str(error)

    def row(name: str, reference: str, limit: float | None) -> Comparison:
        title = f"{workload.name} {name}" + ("" if reference == REFERENCE else f", vs {reference}")
        pairs = list(zip(seconds[name], seconds[reference], strict=False))  # of the turns that both had
        around = [*loads[name], *loads[reference]]
        average, others = max(one.average for one in around), max(one.others for one in around)
        return replace(Comparison.of(title, pairs, "s", limit), load=average, others=others)

    rows: list[Row] = []
    for name, (_, limit) in programs.items():
        if name in reasons:
            rows.append(NotRun(f"{workload.name} {name}", reasons[name], workload.name, name))
        else:
            rows.append(replace(row(name, REFERENCE, limit), workload=workload.name, program=name))
    if peers and PFL not in reasons:
        rows += [row(name, PFL, 1.0) for name in _fedsim(workload)]
    return rows


def _reference(workload: Workload) -> float:
    return median(fresh(pytorch_loop, workload, write(workload, data_folder())))


def _fedsim(workload: Workload) -> dict[str, tuple[Measure, float | None]]:
    """fedsim's programs with their limits, by name; W2 also without training many clients at once."""
    engines = {"fedsim, 2 Ray workers": ("ray", {"workers": 2}), "fedsim inline, 2 threads": ("inline", {"workers": 2})}
    vectorize = ("auto", "off") if workload.name == "W2" and has_key("vectorize") else ("",)

    def programs() -> Iterator[tuple[str, tuple[Measure, float | None]]]:
        for name, (engine, settings) in engines.items():
            for way in vectorize:
                more = {"vectorize": way} if way else {}
                limit = OFF_LIMIT if way == "off" else LIMITS[workload.name]
                yield f"{name}, vectorize={way}" if way else name, (_measure(engine, {**settings, **more}), limit)

    return dict(programs())


def _measure(engine: str, settings: dict[str, object]) -> Measure:
    return lambda workload: median(fresh(fedsim, engine, workload, settings).seconds)


def _cause(errors: str) -> str:
    """The first line of a program's error output that names an exception ("ImportError: ..."), else its last line."""
    lines = errors.splitlines() or ["it wrote nothing"]
    return next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])[:200]


def _peer(name: str) -> Measure:
    """Runs the peer's program with the Python of its environment; raises CannotRun with the cause."""
    environment, module, more = PEERS[name]
    python = ROOT / ".venv-peers" / environment / "bin" / "python" if environment else Path(sys.executable)

    def measure(workload: Workload) -> float:
        if not python.exists():
            raise CannotRun(f"{environment} is not installed (make bench-peers)")
        rounds = 1 if name in SLOW else workload.rounds
        path = write(workload, data_folder())
        command = [str(python), "-m", f"benchmarks.peers.{module}", workload.name, str(path), str(rounds), *more]
        quiet = {**os.environ, **QUIET, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=TIMEOUT, check=True
            )
        except subprocess.TimeoutExpired:
            raise CannotRun(f"took longer than {TIMEOUT:.0f} s") from None
        except subprocess.CalledProcessError as error:
            raise CannotRun(_cause(error.stderr)) from None
        seconds: list[float] = json.loads(done.stdout.splitlines()[-1])["seconds"]
        return median(seconds)

    return measure
