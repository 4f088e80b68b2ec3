"""Runs in tables for the terminal."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fedsim.report.runs import Run


def accuracy_table(runs: Sequence[Run], kind: str = "personal") -> Table:
    """Best and final accuracy of the models the clients would use: the mean over clients, and the worst client."""
    table = Table(title=f"accuracy on each client's own test data ({kind} model)")
    for column in ("algorithm", "mean best", "(round)", "mean final", "worst best", "(round)", "worst final"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for run in runs:
        series = run.series(kind)
        cells = [run.name]
        for values in (series.mean, series.worst):
            best = int(values.argmax())
            cells += [f"{values[best]:.3f}", str(series.rounds[best]), f"{values[-1]:.3f}"]
        table.add_row(*cells)
    return table


def show(table: Table) -> None:
    """Wide enough for every column, also where no terminal says how wide it is."""
    Console(width=None if sys.stdout.isatty() else 120).print(table)
