"""The time of a report on many runs, and of a small sweep, against limits in seconds."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.comparison import Comparison, Row
from fedsim import config as configs
from fedsim.commands.report import print_report
from fedsim.engine.launch import launch
from fedsim.report.collection import collect_runs
from fedsim.report.export import as_csv
from fedsim.report.page import write_page
from fedsim.report.result_tables import cost_table, result_table

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
        Comparison(
            f"report of {RUNS} runs: tables, CSV and page, vs {REPORT_LIMIT:.0f} s", report, REPORT_LIMIT, "s", 1.0
        ),
        Comparison(f"sweep of 18 runs on digits, vs {SWEEP_LIMIT:.0f} s", sweep, SWEEP_LIMIT, "s", 1.0),
    ]


def _report(folder: Path) -> float:
    """Seconds of a report on copies of one run that differ in the seed."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        first = folder / "runs" / "0"
        launch(configs.read(None, ["rounds=30", "model=mlr", f"out={first}"]), "inline")
        for number in range(1, RUNS):
            copy = folder / "runs" / str(number)
            shutil.copytree(first, copy, ignore=shutil.ignore_patterns("checkpoint", "model.npz"))
            manifest = copy / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"seed": 0', f'"seed": {number}'))
        started = time.monotonic()
        found = collect_runs([folder / "runs"])
        print_report(found, None)
        (folder / "table.csv").write_text(as_csv([result_table(found.settings), cost_table(found.settings)]))
        write_page(found, folder / "page.html")
    return time.monotonic() - started


def _sweep(folder: Path) -> float:
    file = folder / "sweep.toml"
    file.write_text(SWEEP)
    command = [sys.executable, "-m", "fedsim.cli", "sweep", str(file), "--out", str(folder / "sweep")]
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started
