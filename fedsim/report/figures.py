"""Runs as pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsim.report.groups import group
from fedsim.report.runs import Run

# Okabe and Ito's colours: colour-blind safe
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
FRESH, STALE, WASTED = "#0072B2", "#E69F00", "#BBBBBB"
MANY_STEPS = 120  # more server steps than this are not drawn one by one


def accuracy_figure(runs: Sequence[Run], path: Path, kind: str = "personal", over: str = "rounds") -> None:
    """Left: accuracy over the rounds, or over the clock's `times`, of the mean (band: lowest to highest seed) and of the
    worst client. Right: every client at the end."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curves, finals = figure.subplots(1, 2, width_ratios=(3, 2))
    found = [(each, band) for each in group(runs) if (band := each.curve(kind, over)) is not None]
    names = [each.label for each, _ in found]
    for index, (each, band) in enumerate(found):
        colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
        if len(each.runs) > 1:
            curves.fill_between(band.place, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
        curves.plot(band.place, band.worst, line, color=colour, linewidth=0.9, alpha=0.7)
        curves.plot(band.place, band.mean, line, color=colour, linewidth=2.4, label=names[index])
        finals_of = np.concatenate([run.series(kind).values[-1] for run in each.runs if len(run.series(kind).rounds)])
        aside = np.linspace(-0.2, 0.2, len(finals_of))  # next to each other, so that equal clients all show
        finals.scatter(index + aside, finals_of, color=colour, alpha=0.7, s=24)
        finals.hlines(np.nanmean(finals_of), index - 0.3, index + 0.3, color=colour, linewidth=2.5)
    unit = {"rounds": "server step", "times": "virtual seconds"}[over]
    curves.set(xlabel=unit, ylabel="accuracy on own test data", title="thick: mean over clients, thin: worst client")
    finals.set(ylabel="final accuracy", title="each client at the end (bar: mean)", xlim=(-0.6, len(names) - 0.4))
    finals.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 10 else 0)
    for axes in (curves, finals):
        axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.3)
    curves.legend(loc="lower right")
    figure.savefig(path, dpi=130)


def timeline_figure(run: Run, path: Path) -> None:
    """Who worked when and when the server stepped; how stale the results were; how much each client waited."""
    height = 1.5 + 0.25 * min(len(run.clients), 60)
    figure = Figure(figsize=(12, max(4.5, height)), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 1))
    _timeline(figure.add_subplot(grid[:, 0]), run)
    _staleness(figure.add_subplot(grid[0, 1]), run)
    _idle(figure.add_subplot(grid[1, 1]), run)
    figure.suptitle(f"{run.config['algorithm']}, pace {run.config['pace']}, stragglers {run.config['stragglers']}")
    figure.savefig(path, dpi=130)


def _timeline(axes: Axes, run: Run) -> None:
    rows = {client: row for row, client in enumerate(run.clients)}
    work = run.work()
    kinds = (
        ("fresh", FRESH, [job for job in work if job.staleness == 0]),
        ("stale", STALE, [job for job in work if job.staleness]),
        ("wasted", WASTED, [job for job in work if job.staleness is None]),
    )
    for name, colour, jobs in kinds:
        if jobs:
            where, starts = [rows[job.client] for job in jobs], [job.sent for job in jobs]
            lengths = [job.arrived - job.sent for job in jobs]
            axes.barh(
                where, lengths, left=starts, height=0.7, color=colour, edgecolor="white", linewidth=0.6, label=name
            )
    if len(run.steps) <= MANY_STEPS:
        axes.vlines(run.steps, -0.5, len(rows) - 0.5, color="black", linewidth=0.7, label="server step")
    axes.set(xlabel="seconds", ylabel="client", title="who worked when", ylim=(len(rows) - 0.5, -0.5))
    axes.set_xlim(0, float(run.steps[-1]) if len(run.steps) else 1.0)
    if len(rows) <= 60:
        axes.set_yticks(range(len(rows)), [str(client) for client in rows], fontsize=8)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4, frameon=False)


def _staleness(axes: Axes, run: Run) -> None:
    stale = [job.staleness for job in run.work() if job.staleness is not None]
    counts = np.bincount(stale) if stale else np.zeros(1, np.int64)
    axes.bar(range(len(counts)), counts, color=[FRESH, *([STALE] * (len(counts) - 1))])
    axes.set(xlabel="staleness (server steps)", ylabel="results", title="how stale")
    if len(counts) < 12:
        axes.set_xticks(range(len(counts)))


def _idle(axes: Axes, run: Run) -> None:
    shares = run.idle
    axes.bar(range(len(shares)), shares, color="#009E73")
    axes.set(xlabel="client", ylabel="share of the time", title="idle", ylim=(0, 1))
    if len(shares) <= 12:
        axes.set_xticks(range(len(shares)), [str(client) for client in run.clients])
