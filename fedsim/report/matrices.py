"""How a run related its clients to each other: heat maps of the recorded matrices, and their means over the rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.cluster import hierarchy

from fedsim.files import read_npz
from fedsim.matrices import matrix_files
from fedsim.report.figures import COLOURS, LINES
from fedsim.report.relations import groups_by_data, inside_and_outside
from fedsim.report.runs import Run
from fedsim.similarity import off_diagonal

Matrix = NDArray[np.float64]
COLUMNS = 4  # rounds side by side
NAMED = 20  # clients named one by one at the axes


def load(run: Run) -> dict[int, dict[str, Matrix]]:
    """Round -> name -> clients x clients, for every round in which something changed."""
    return {number: read_npz(path) for number, path in matrix_files(run.folder).items()}


def order_by_data(run: Run) -> list[int]:
    """Rows of the clients, those with similar labels side by side (total variation, average linkage)."""
    counts = np.array([client["labels"] for client in run.manifest["clients"]], np.float64)
    if len(counts) < 3:
        return list(range(len(counts)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    tree = hierarchy.linkage(shares, "average", metric="cityblock", optimal_ordering=True)
    return [int(row) for row in hierarchy.leaves_list(tree)]


def spread_over(rounds: Sequence[int], count: int = COLUMNS) -> list[int]:
    """At most so many of the rounds, the first and the last among them."""
    places = np.linspace(0, len(rounds) - 1, min(count, len(rounds))).round().astype(int)
    return [rounds[place] for place in dict.fromkeys(places.tolist())]


def matrix_figure(run: Run, path: Path, rounds: Sequence[int] | None = None) -> bool:
    """A heat map per matrix (below each other) and round (side by side); below, the means over the rounds. False, and no
    picture, if the run recorded no matrices. The diagonal is left grey: what others mean to a client is the question."""
    found = load(run)
    if not found:
        return False
    shown = spread_over(list(found)) if rounds is None else [number for number in rounds if number in found]
    names, order = list(found[shown[-1]]), order_by_data(run)
    figure = Figure(figsize=(2.8 * max(len(shown), 2) + 1.6, 2.9 * len(names) + 3), layout="constrained")
    grid = figure.add_gridspec(len(names) + 1, len(shown))
    for row, name in enumerate(names):
        low, high = _range([found[number][name] for number in shown])
        panels = [figure.add_subplot(grid[row, column]) for column in range(len(shown))]
        for axes, number in zip(panels, shown, strict=True):
            image = _heat(axes, found[number][name], order, low, high)
            axes.set_title(f"{name}, round {number}", fontsize=10)
        figure.colorbar(image, ax=panels, shrink=0.85)
    _means(figure.add_subplot(grid[len(names), :]), found, names, groups_by_data(run))
    figure.suptitle(f"{run.config['algorithm']}: clients in the order of their labels")
    figure.savefig(path, dpi=130)
    return True


def mean_between(found: Mapping[int, Mapping[str, Matrix]], name: str) -> list[float]:
    """One number per recorded round: what different clients have to do with each other on average (Figures 4-5 of SPFL)."""
    return [float(np.mean(off_diagonal(recorded[name]))) for recorded in found.values()]


def _range(matrices: Sequence[Matrix]) -> tuple[float, float]:
    """One colour scale for all rounds; it needs some length even if all clients are alike."""
    entries = (
        np.concatenate([off_diagonal(matrix).ravel() for matrix in matrices]) if len(matrices[0]) > 1 else np.zeros(1)
    )
    low, high = float(np.nanmin(entries)), float(np.nanmax(entries))
    return low, max(high, low + 1e-9)


def _heat(axes: Axes, matrix: Matrix, order: Sequence[int], low: float, high: float) -> Any:
    shown = np.asarray(matrix, np.float64)[np.ix_(order, order)]
    np.fill_diagonal(shown, np.nan)
    image = axes.imshow(shown, cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
    axes.set_facecolor("#CCCCCC")
    named = range(len(order)) if len(order) <= NAMED else ()
    axes.set_xticks(list(named), [str(order[place]) for place in named], fontsize=7)
    axes.set_yticks(list(named), [str(order[place]) for place in named], fontsize=7)
    return image


def _means(axes: Axes, found: dict[int, dict[str, Matrix]], names: Sequence[str], groups: Sequence[int] | None) -> None:
    """Each matrix lasts until the next one was recorded. Where clients form groups: inside and between them."""
    lines = dict[str, list[float]]()
    for name in names:
        if groups is None:
            lines[name] = mean_between(found, name)
        else:
            means = [inside_and_outside(recorded[name], groups) for recorded in found.values()]
            inside, outside = zip(*means, strict=True)
            lines |= {f"{name} inside groups": list(inside), f"{name} between groups": list(outside)}
    for index, (name, values) in enumerate(lines.items()):
        colour, line = COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]
        axes.plot(list(found), values, marker="o", markersize=4, color=colour, linestyle=line, label=name)
    axes.set(xlabel="round", ylabel="mean over pairs", title="mean between different clients")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
