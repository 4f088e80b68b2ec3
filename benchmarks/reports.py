"""How long a researcher waits: for the report of many runs, and for a small sweep. Both against a limit in seconds."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.row import Row
from fedsim import config as configs
from fedsim.commands.report import tell
from fedsim.engine.launch import launch
from fedsim.report.export import as_csv
from fedsim.report.page import write_page
from fedsim.report.results import costs, results
from fedsim.report.selection import select

NAME = "reports"
RUNS, REPORT_LIMIT, SWEEP_LIMIT = 500, 20.0, 300.0
SWEEP = """
[base]
dataset = "digits"
clients = 10
rounds = 20
[grid]
algorithm = ["local", "fedavg", "fedavg-ft"]
partition = ["iid", "dirichlet"]
seed = [0, 1, 2]
"""


def run() -> list[Row]:
    with TemporaryDirectory() as folder:
        report, sweep = _report(Path(folder)), _sweep(Path(folder))
    return [
        Row(f"report of {RUNS} runs: tables, CSV and page, vs {REPORT_LIMIT:.0f} s", report, REPORT_LIMIT, "s", 1.0),
        Row(f"sweep of 18 runs on digits, vs {SWEEP_LIMIT:.0f} s", sweep, SWEEP_LIMIT, "s", 1.0),
    ]


def _report(folder: Path) -> float:
    """One real run, copied; the copies differ in their seed, as the runs of a study do."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        first = folder / "runs" / "0"
        launch(configs.read(None, ["rounds=30", "model=mlr", f"out={first}"]), "inline")
        for number in range(1, RUNS):
            copy = folder / "runs" / str(number)
            shutil.copytree(first, copy, ignore=shutil.ignore_patterns("checkpoint", "model.npz"))
            manifest = copy / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"seed": 0', f'"seed": {number}'))
        began = time.monotonic()
        found = select([folder / "runs"])
        tell(found, None)
        (folder / "table.csv").write_text(as_csv([results(found.groups), costs(found.groups)]))
        write_page(found, folder / "page.html")
    return time.monotonic() - began


def _sweep(folder: Path) -> float:
    file = folder / "sweep.toml"
    file.write_text(SWEEP)
    command = [sys.executable, "-m", "fedsim.cli", "sweep", str(file), "--out", str(folder / "sweep")]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began
