"""Rich tables for the terminal."""

import sys
from collections.abc import Sequence
from statistics import mean

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsim.report.result_tables import ResultTable
from fedsim.report.runs import RunResult, choose_metric, display_names
from fedsim.report.settings import MeanStd, Setting
from fedsim.report.statistics import pairwise_tests
from fedsim.results.curves import KINDS
from fedsim.results.metric import Metric
from fedsim.sweeps.manifest import SearchResult

MANY = 12  # settings in the table of all pairs
NAMED = 4  # clients named in a note


def metric_table(runs: Sequence[RunResult], kind: str = "personal", metric: str | None = None) -> Table:
    """Best and final value of each run: the mean over clients (of accuracies, the best one is called BMTA, best mean
    testing accuracy), and the worst client."""
    chosen = choose_metric(runs, metric)
    form = ".3f" if chosen.percent else chosen.format
    title = f"{chosen.name} on each client's own test data ({kind} model)"
    best_mean = "BMTA" if chosen.percent else "mean best"
    table = _table(title, best_mean, "(round)", "mean final", "worst best", "(round)", "worst final")
    for name, run in zip(display_names(runs), runs, strict=True):
        series = run.series(kind, chosen.name)
        cells = [name]
        for values in (series.mean, series.worst):
            best = chosen.best_index(values)
            cells += [f"{values[best]:{form}}", str(series.rounds[best]), f"{values[-1]:{form}}"]
        table.add_row(*cells)
    return table


def outdated(runs: Sequence[RunResult], kind: str = "personal", metric: str | None = None) -> list[str]:
    """Warnings, one per run, that name clients whose numbers are older than the last evaluation."""
    lines = []
    for name, run in zip(display_names(runs), runs, strict=True):
        if old := run.outdated(kind, metric):
            shown = ", ".join(f"client {client} in round {number}" for client, number in list(old.items())[:NAMED])
            more = f" and {len(old) - NAMED} more" if len(old) > NAMED else ""
            last = run.series(kind, metric).rounds[-1]
            lines.append(f"warning: {name}: {kind} models last tested before round {last}: {shown}{more}")
    return lines


def unseen_clients(runs: Sequence[RunResult], metric: str | None = None) -> list[str]:
    """What the clients of each run measured that never took part, a line per run that has any."""
    chosen, lines = choose_metric(runs, metric), []
    for name, run in zip(display_names(runs), runs, strict=True):
        found = {kind: run.of_unseen(kind, chosen.name) for kind in KINDS}
        if known := [f"{kind} {chosen.text(value)}" for kind, value in found.items() if value is not None]:
            shown = ", ".join(map(str, run.unseen[:NAMED])) + (" ..." if len(run.unseen) > NAMED else "")
            lines.append(f"{name}: {chosen.name} of {len(run.unseen)} unseen clients ({shown}): {', '.join(known)}")
    return lines


def results_table(title: str, found: ResultTable) -> Table:
    """The best of a column is bold, the second underlined."""
    table = _table(title, *(column.name for column in found.columns))
    for row, each in enumerate(found.settings):
        table.add_row(escape(each.label), *(_marked(c.text(row), found.rank(c, row)) for c in found.columns))
    return table


def _marked(text: str, rank: int | None) -> str:
    return f"[bold]{text}[/]" if rank == 0 else f"[underline]{text}[/]" if rank == 1 else text


def pairs_table(settings: Sequence[Setting]) -> Table | None:
    """The corrected p-values of all pairs of settings; None for fewer than three settings or more than MANY."""
    if not 2 < len(settings) <= MANY:
        return None
    tests = pairwise_tests(settings)
    numbers = map(str, range(1, len(settings) + 1))
    table = _table("Wilcoxon signed-rank p over clients, after Holm's correction", *numbers)
    for i, each in enumerate(settings):
        pairs = [tests.get((min(i, j), max(i, j))) for j in range(len(settings))]
        table.add_row(escape(f"{i + 1} {each.label}"), *("" if pair is None else f"{pair[1]:.2g}" for pair in pairs))
    return table


def model_table(settings: Sequence[Setting]) -> Table | None:
    """The final value of the clients with each model; None unless clients of a run have different models."""
    runs = [run for each in settings for run in each.runs]
    if not any(len(run.models) > 1 for run in runs):
        return None
    sizes = {name: run.parameters(name) for run in runs for name in run.models}
    metric = settings[0].metric
    names = [name if size is None else f"{name} ({size:,})" for name, size in sizes.items()]
    table = _table(f"final {metric.name} by the clients' model (parameters)", *names)
    for each in settings:
        found = [(run.models, run.series("personal", metric.name).values) for run in each.runs]
        ends = [
            {m: float(np.nanmean(values[-1][own])) for m, own in models.items()}
            for models, values in found
            if len(values)
        ]
        cells = [MeanStd.of([end[name] for end in ends if name in end]) for name in sizes]
        table.add_row(escape(each.label), *(cell.text(metric.format, metric.scale) for cell in cells))
    return table


def time_table(settings: Sequence[Setting]) -> Table:
    """Virtual seconds, server steps, training jobs, the share of jobs that were not used, staleness, and idle time."""
    table = _table("time", "seconds", "steps", "jobs", "wasted", "staleness mean", "highest", "idle")
    for each in settings:
        runs = [run for run in each.runs if len(run.steps)]
        stale = [[job.staleness for job in run.jobs if job.staleness is not None] for run in runs]
        wasted = [1 - len(s) / max(1, len(run.jobs)) for s, run in zip(stale, runs, strict=True)]
        numbers = [
            MeanStd.of([float(run.steps[-1]) for run in runs]).text(".1f"),
            MeanStd.of([len(run.steps) for run in runs]).text(".0f"),
            MeanStd.of([len(run.jobs) for run in runs]).text(".0f"),
            MeanStd.of(wasted).text(".0f", 100),
            MeanStd.of([mean(s) for s in stale if s]).text(".2f"),
            str(max((max(s) for s in stale if s), default="-")),
            MeanStd.of([mean(run.idle) for run in runs]).text(".0f", 100),
        ]
        table.add_row(escape(each.label), *numbers)
    table.caption = "wasted and idle in percent"
    return table


def search_table(search: SearchResult) -> Table:
    """Every candidate and its score on validation data; the best is bold."""
    metric = Metric(search.metric, search.direction)
    title = f"search for {escape(search.run)}, on validation data"
    table = _table(title, *search.points[0], f"best mean {metric.name}", "")
    form = ".3f" if metric.percent else metric.format
    for number, (point, score) in enumerate(zip(search.points, search.scores, strict=True)):
        text = "failed" if score is None else f"{score:{form}}"
        stopped = bool(search.states) and search.states[number] == "stopped"
        note = f"stopped in round {search.rounds[number]}" if stopped else ""
        style = "bold" if number == search.best else None
        table.add_row(str(number), *(escape(_short(value)) for value in point.values()), text, note, style=style)
    return table


def show(table: Table) -> None:
    """Prints a table; where the output is no terminal, with 140 columns."""
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title)
    table.add_column("run")
    for column in numbers:
        table.add_column(column, justify="right")
    return table
