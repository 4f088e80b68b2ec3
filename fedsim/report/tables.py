"""Runs in tables for the terminal."""

import sys
from collections.abc import Sequence
from statistics import mean

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsim.plan import Trial
from fedsim.report.groups import Group, Spread
from fedsim.report.results import Results
from fedsim.report.runs import Run, labels
from fedsim.report.statistics import pairwise

MANY = 12  # settings beside each other


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


def results_table(title: str, found: Results) -> Table:
    """The best of a column is bold, the second underlined."""
    table = _table(title, *(column.name for column in found.columns))
    for row, each in enumerate(found.groups):
        table.add_row(escape(each.label), *(_marked(c.text(row), found.place(c, row)) for c in found.columns))
    return table


def _marked(text: str, place: int | None) -> str:
    return f"[bold]{text}[/]" if place == 0 else f"[underline]{text}[/]" if place == 1 else text


def pairs_table(groups: Sequence[Group]) -> Table | None:
    """Each setting against each on the same data; None if there are too few to be worth it, or too many to be shown."""
    if not 2 < len(groups) <= MANY:
        return None
    tests = pairwise(groups)
    table = _table("Wilcoxon signed-rank p over clients, after Holm's correction", *map(str, range(1, len(groups) + 1)))
    for i, each in enumerate(groups):
        pairs = [tests.get((min(i, j), max(i, j))) for j in range(len(groups))]
        table.add_row(escape(f"{i + 1} {each.label}"), *("" if pair is None else f"{pair[1]:.2g}" for pair in pairs))
    return table


def time_table(groups: Sequence[Group]) -> Table:
    """Where the simulated time went: server steps, jobs and the share of them that was wasted, staleness, idle clients."""
    table = _table("time", "seconds", "steps", "jobs", "wasted", "staleness mean", "highest", "idle")
    for each in groups:
        runs = [run for run in each.runs if len(run.steps)]
        stale = [[job.staleness for job in run.work() if job.staleness is not None] for run in runs]
        numbers = [
            Spread.of([float(run.steps[-1]) for run in runs]).text(1),
            Spread.of([len(run.steps) for run in runs]).text(0),
            Spread.of([len(run.work()) for run in runs]).text(0),
            Spread.of([1 - len(s) / max(1, len(run.work())) for s, run in zip(stale, runs, strict=True)]).text(0, 100),
            Spread.of([mean(s) for s in stale if s]).text(2),
            str(max((max(s) for s in stale if s), default="-")),
            Spread.of([mean(run.idle) for run in runs]).text(0, 100),
        ]
        table.add_row(escape(each.label), *numbers)
    table.caption = "wasted and idle in percent"
    return table


def search_table(trial: Trial) -> Table:
    """Every candidate and how it did on validation data; the best is bold."""
    table = _table(f"search for {escape(trial.run)}, on validation data", *trial.points[0], "best mean accuracy")
    top = max((score for score in trial.scores if score is not None), default=None)
    for number, (point, score) in enumerate(zip(trial.points, trial.scores, strict=True)):
        text = "failed" if score is None else f"{score:.3f}"
        style = "bold" if score is not None and score == top else None
        table.add_row(str(number), *(escape(_short(value)) for value in point.values()), text, style=style)
    return table


def show(table: Table) -> None:
    """Wide enough for every column, also where no terminal says how wide it is."""
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title)
    table.add_column("run")
    for column in numbers:
        table.add_column(column, justify="right")
    return table
