"""A figure of hyper-parameter searches: what was tried, in order, and by the value of each key."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedsim.results.metric import Metric
from fedsim.sweeps.manifest import SearchResult

FINISHED, STOPPED, BEST = "#0072B2", "#BBBBBB", "#D55E00"
WIDE = 30  # a key whose largest value is so many times the smallest has a logarithmic axis


def search_figure(searches: Sequence[SearchResult], path: Path) -> None:
    """A row per search: the scores by number, with the best one so far, then by the value of each key."""
    columns = 1 + max(len(search.points[0]) for search in searches)
    figure = Figure(figsize=(3.4 * columns, 3.0 * len(searches)), layout="constrained")
    panels = figure.subplots(len(searches), columns, sharey="row", squeeze=False)
    for search, row in zip(searches, panels, strict=True):
        metric = Metric(search.metric, search.direction)
        scores = np.array([np.nan if score is None else score for score in search.scores], np.float64)
        _scatter(row[0], search, np.arange(len(scores)), scores)
        finished = np.array([state != "stopped" for state in search.states or ["finished"] * len(scores)])
        worst = -np.inf if metric.higher_is_better else np.inf
        best = np.fmax if metric.higher_is_better else np.fmin
        row[0].step(range(len(scores)), best.accumulate(np.where(finished, scores, worst)), where="post", color=BEST)
        row[0].set(xlabel="candidate", ylabel=f"{metric.name} on validation data", title=search.run)
        for axes, key in zip(row[1:], search.points[0], strict=False):
            values = [point[key] for point in search.points]
            numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            _scatter(axes, search, np.array(values if numbers else list(map(str, values))), scores)
            if numbers and min(values) > 0 and max(values) > WIDE * min(values):
                axes.set_xscale("log")
            axes.set_xlabel(key)
        for axes in row[1 + len(search.points[0]) :]:
            axes.set_visible(False)
    figure.savefig(path, dpi=110)


def _scatter(axes: Axes, search: SearchResult, x: NDArray[Any], scores: NDArray[np.float64]) -> None:
    """Grey: stopped early; with a ring: the best one."""
    states = search.states or ["finished"] * len(scores)
    axes.scatter(x, scores, c=[STOPPED if state == "stopped" else FINISHED for state in states], s=28)
    if search.best is not None:
        axes.scatter(x[search.best], scores[search.best], facecolors="none", edgecolors=BEST, s=110, linewidths=2)
    axes.grid(alpha=0.3)
