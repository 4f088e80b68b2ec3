"""Start-up: `fedsim --help` against an empty Python program, and the first training step against `import torch`."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.comparison import Comparison, Row

FIRST_STEP_LIMIT = 2.5
TURNS, TIMEOUT = 5, 120.0
FEDSIM = (sys.executable, "-m", "fedsim.cli")


def run() -> list[Row]:
    _first_step()  # prepares the dataset and its split
    commands = [(_seconds([*FEDSIM, "--help"]), _seconds([sys.executable, "-c", "pass"])) for _ in range(TURNS)]
    steps = [(_first_step(), _import_torch()) for _ in range(TURNS)]
    return [
        Comparison.of("fedsim --help, vs python -c pass", commands, "s"),
        Comparison.of("fedsim run to its first step, inline, vs import torch", steps, "s", FIRST_STEP_LIMIT),
    ]


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _import_torch() -> float:
    """Until torch is imported, without the end of the process, which a run's first step does not contain either."""
    began = time.perf_counter()
    command = [sys.executable, "-c", "import torch; print(flush=True)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return time.perf_counter() - began


def _first_step() -> float:
    """Until a round with one client and one mini-batch is recorded in events.jsonl: slightly more than the first step."""
    with TemporaryDirectory() as home:
        out = Path(home) / "run"
        settings = ("clients=1", "rounds=1", "local-steps=1", "device=cpu")
        command = [*FEDSIM, "run", "--engine", "inline", "--out", str(out)]
        began = time.perf_counter()
        with subprocess.Popen(
            [*command, *(word for pair in settings for word in ("--set", pair))], stdout=subprocess.DEVNULL
        ) as process:
            while not _has_stepped(out / "events.jsonl"):
                if process.poll() is not None or time.perf_counter() - began > TIMEOUT:
                    process.kill()
                    raise RuntimeError(f"fedsim run ended without a step (exit code {process.poll()})")
                time.sleep(0.002)
            took = time.perf_counter() - began
            process.wait()
    return took


def _has_stepped(events: Path) -> bool:
    return events.exists() and '"step"' in events.read_text()
