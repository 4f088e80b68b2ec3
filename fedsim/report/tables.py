"""Runs in tables for the terminal."""

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedsim.report.runs import Run, labels
from fedsim.report.statistics import Method, pairwise


def accuracy_table(runs: Sequence[Run], kind: str = "personal") -> Table:
    """Best and final accuracy of the models the clients would use: the mean over clients (its best is the BMTA, best mean
    testing accuracy), and the worst client."""
    title = f"accuracy on each client's own test data ({kind} model)"
    table = _table(title, "BMTA", "(round)", "mean final", "worst best", "(round)", "worst final")
    for name, run in zip(labels(runs), runs, strict=True):
        series = run.series(kind)
        cells = [name]
        for values in (series.mean, series.worst):
            best = int(values.argmax())
            cells += [f"{values[best]:.3f}", str(series.rounds[best]), f"{values[-1]:.3f}"]
        table.add_row(*cells)
    return table


def method_table(found: Sequence[Method]) -> Table:
    """BMTA and final accuracy of each method over its seeds; from each pair, the p that it is chance."""
    table = _table("methods over clients: Wilcoxon signed-rank p, after Holm's correction", "seeds", "BMTA", "final")
    for method in found:
        table.add_column(f"vs {method.name}", justify="right")
    tests = pairwise(found)
    for i, method in enumerate(found):
        cells = [method.name, str(len(method.runs)), _spread(method.bmta), _spread(method.final)]
        for j in range(len(found)):
            pair = tests.get((min(i, j), max(i, j)))
            cells.append("" if pair is None else f"{pair[1]:.2g}")
        table.add_row(*cells)
    return table


def _spread(values: NDArray[np.float64]) -> str:
    """In percent, mean and sample standard deviation."""
    return f"{100 * values.mean():.2f}" + (f" +- {100 * values.std(ddof=1):.2f}" if len(values) > 1 else "")


def time_table(runs: Sequence[Run]) -> Table:
    """Where the time went: server steps, jobs and the share of them that was wasted, staleness, idle clients."""
    table = _table("time", "seconds", "steps", "jobs", "wasted", "staleness mean", "highest", "idle")
    for name, run in zip(labels(runs), runs, strict=True):
        work, steps = run.work(), run.steps
        stale = [job.staleness for job in work if job.staleness is not None]
        wasted = 1 - len(stale) / max(1, len(work))
        numbers = [f"{steps[-1]:.1f}", str(len(steps)), str(len(work)), f"{wasted:.0%}"]
        table.add_row(name, *numbers, f"{np.mean(stale):.2f}", str(max(stale)), f"{np.mean(idle_shares(run)):.0%}")
    return table


def idle_shares(run: Run) -> list[float]:
    """For each client, the share of the run it did not work."""
    length = float(run.steps[-1]) if len(run.steps) else 0.0
    busy = dict.fromkeys(run.clients, 0.0)
    for job in run.work():
        busy[job.client] += min(job.arrived, length) - min(job.sent, length)
    return [1 - busy[client] / length if length else 0.0 for client in run.clients]


def show(table: Table) -> None:
    """Wide enough for every column, also where no terminal says how wide it is."""
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title)
    table.add_column("run")
    for column in numbers:
        table.add_column(column, justify="right")
    return table
