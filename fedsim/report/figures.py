"""Figures of runs: metrics over time and per client, and timelines of the training jobs."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsim.report.runs import RunResult, choose_metric
from fedsim.report.settings import group_by_setting

# the colors of Okabe and Ito, which color-blind readers can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":")
FRESH, STALE, WASTED = "#0072B2", "#E69F00", "#BBBBBB"
MANY_STEPS = 120  # with more server steps than this they are not drawn


class NotebookFigure(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=80)
        return picture.getvalue()


def metric_figure(
    runs: Sequence[RunResult],
    path: Path | None,
    metric: str | None = None,
    kind: str = "personal",
    over: str = "rounds",
) -> NotebookFigure:
    """Left: the mean over clients (band: lowest to highest seed) and the worst client over `rounds` or `times`. Right:
    the final value of every client. `metric` is the main metric of the runs unless given."""
    chosen = choose_metric(runs, metric)
    figure = NotebookFigure(figsize=(11, 4.5), layout="constrained")
    curves, finals = figure.subplots(1, 2, width_ratios=(3, 2))
    settings = group_by_setting(runs, metric=chosen)
    found = [(each, band) for each in settings if (band := each.curve(kind, over)) is not None]
    names = [each.label for each, _ in found]
    for index, (each, band) in enumerate(found):
        colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
        if len(each.runs) > 1:
            curves.fill_between(band.x, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
        curves.plot(band.x, band.worst, line, color=colour, linewidth=0.9, alpha=0.7)
        curves.plot(band.x, band.mean, line, color=colour, linewidth=2.4, label=names[index])
        final_values = np.concatenate([series.values[-1] for series in each.series(kind)])
        offsets = np.linspace(-0.2, 0.2, len(final_values))  # side by side, so that equal clients are all visible
        finals.scatter(index + offsets, final_values, color=colour, alpha=0.7, s=24)
        finals.hlines(np.nanmean(final_values), index - 0.3, index + 0.3, color=colour, linewidth=2.5)
    xlabel = {"rounds": "server step", "times": "virtual seconds"}[over]
    title = "thick: mean over clients, thin: worst client"
    curves.set(xlabel=xlabel, ylabel=f"{chosen.name} on own test data", title=title)
    finals.set(ylabel=f"final {chosen.name}", title="each client at the end (bar: mean)", xlim=(-0.6, len(names) - 0.4))
    finals.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names), default=0) > 10 else 0)
    for axes in (curves, finals):
        if chosen.percent:
            axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.3)
    if names:
        curves.legend(loc="lower right" if chosen.higher_is_better else "upper right")
    if path is not None:
        figure.savefig(path, dpi=130)
    return figure


def mixing_figure(thetas: Sequence[float], losses: Mapping[str, Sequence[float]], metric: str, path: Path) -> None:
    """The loss of mixtures of two models over theta, a panel for each start; dotted: the better of the two models."""
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    places = {theta: place for place, theta in enumerate(thetas)}
    for axes, (start, values) in zip(figure.subplots(1, len(losses)), losses.items(), strict=True):
        parents = [values[places[theta]] for theta in (0.0, 1.0)]
        axes.plot(thetas, values, color=COLOURS[0], linewidth=2)
        axes.plot([0, 1], parents, "o", color=COLOURS[1])
        axes.axhline(min(parents), color=COLOURS[1], linestyle=":", linewidth=1)
        axes.set(xlabel="theta", ylabel=f"training {metric}", title=f"{start} start")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def judged_figure(run: RunResult, path: Path) -> bool:
    """What the server measured of each result on public data, over the rounds, honest and malicious clients apart. False,
    and no file, if it measured nothing."""
    names = sorted({name for _, row in run.results for name in row if name.startswith("public-")})
    if not names:
        return False
    figure = Figure(figsize=(5.5 * len(names), 4.2), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for malicious, colour, mark in ((False, COLOURS[0], "o"), (True, COLOURS[1], "x")):
            found = [
                (n, row[name]) for n, row in run.results if name in row and row.get("malicious", False) is malicious
            ]
            if found:
                label = "malicious" if malicious else "honest"
                axes.scatter(*zip(*found, strict=True), color=colour, marker=mark, s=14, alpha=0.6, label=label)
        values = [row[name] for _, row in run.results if row.get(name, 0) > 0]
        if values and max(values) > 50 * min(values):
            axes.set_yscale("log")
        axes.set(xlabel="server step", ylabel=f"{name.removeprefix('public-')} on public data")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"models that the server received: {run.config['algorithm']}, attack {run.config['attack']}")
    figure.savefig(path, dpi=130)
    return True


def timeline_figure(run: RunResult, path: Path) -> None:
    """Left: the training jobs of every client, and the server steps. Right: staleness and idle time."""
    height = 1.5 + 0.25 * min(len(run.clients), 60)
    figure = Figure(figsize=(12, max(4.5, height)), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 1))
    _timeline(figure.add_subplot(grid[:, 0]), run)
    _staleness(figure.add_subplot(grid[0, 1]), run)
    _idle(figure.add_subplot(grid[1, 1]), run)
    figure.suptitle(f"{run.config['algorithm']}, pace {run.config['pace']}, stragglers {run.config['stragglers']}")
    figure.savefig(path, dpi=130)


def _timeline(axes: Axes, run: RunResult) -> None:
    rows = {client: row for row, client in enumerate(run.clients)}
    kinds = (
        ("fresh", FRESH, [job for job in run.jobs if job.staleness == 0]),
        ("stale", STALE, [job for job in run.jobs if job.staleness]),
        ("wasted", WASTED, [job for job in run.jobs if job.staleness is None]),
    )
    for name, colour, jobs in kinds:
        if jobs:
            places, starts = [rows[job.client] for job in jobs], [job.sent for job in jobs]
            lengths = [job.arrived - job.sent for job in jobs]
            bars = axes.barh(places, lengths, left=starts, height=0.7, color=colour, label=name)
            for bar in bars:
                bar.set(edgecolor="white", linewidth=0.6)
    if len(run.steps) <= MANY_STEPS:
        axes.vlines(run.steps, -0.5, len(rows) - 0.5, color="black", linewidth=0.7, label="server step")
    axes.set(xlabel="seconds", ylabel="client", title="training jobs", ylim=(len(rows) - 0.5, -0.5))
    axes.set_xlim(0, float(run.steps[-1]) if len(run.steps) else 1.0)
    if len(rows) <= 60:
        axes.set_yticks(range(len(rows)), [str(client) for client in rows], fontsize=8)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4, frameon=False)


def _staleness(axes: Axes, run: RunResult) -> None:
    stale = [job.staleness for job in run.jobs if job.staleness is not None]
    counts = np.bincount(stale) if stale else np.zeros(1, np.int64)
    axes.bar(range(len(counts)), counts, color=[FRESH, *([STALE] * (len(counts) - 1))])
    axes.set(xlabel="staleness (server steps)", ylabel="results", title="staleness")
    if len(counts) < 12:
        axes.set_xticks(range(len(counts)))


def _idle(axes: Axes, run: RunResult) -> None:
    shares = run.idle
    axes.bar(range(len(shares)), shares, color="#009E73")
    axes.set(xlabel="client", ylabel="share of the time", title="idle time", ylim=(0, 1))
    if len(shares) <= 12:
        axes.set_xticks(range(len(shares)), [str(client) for client in run.clients])
