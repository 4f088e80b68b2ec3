"""Runs as pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedsim.report.runs import Run

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)  # Okabe and Ito: colour-blind safe
LINES = ("-", "--", "-.", ":")


def accuracy_figure(runs: Sequence[Run], path: Path, kind: str = "personal") -> None:
    """Left: accuracy over the rounds, of the mean and of the worst client. Right: every client at the end."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curves, finals = figure.subplots(1, 2, width_ratios=(3, 2))
    for index, run in enumerate(runs):
        series, colour = run.series(kind), COLOURS[index % len(COLOURS)]
        line = LINES[index % len(LINES)]
        curves.plot(series.rounds, series.worst, line, color=colour, linewidth=0.9, alpha=0.7)
        curves.plot(series.rounds, series.mean, line, color=colour, linewidth=2.4, label=run.name)
        aside = np.linspace(-0.2, 0.2, series.values.shape[1])  # next to each other, so that equal clients all show
        finals.scatter(index + aside, series.values[-1], color=colour, alpha=0.7, s=24)
        finals.hlines(series.mean[-1], index - 0.3, index + 0.3, color=colour, linewidth=2.5)
    curves.set(xlabel="round", ylabel="accuracy on own test data", title="thick: mean over clients, thin: worst client")
    finals.set(ylabel="final accuracy", title="each client at the end (bar: mean)", xlim=(-0.6, len(runs) - 0.4))
    finals.set_xticks(range(len(runs)), [run.name for run in runs])
    for axes in (curves, finals):
        axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.3)
    curves.legend(loc="lower right")
    figure.savefig(path, dpi=130)
