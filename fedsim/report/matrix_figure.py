"""Figures of the clients x clients matrices that a run recorded: heat maps, and their means over the rounds."""

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
from fedsim.report.figures import COLOURS, LINES
from fedsim.report.relations import groups_by_data, inside_and_outside
from fedsim.report.runs import RunResult
from fedsim.results.matrices import matrix_files
from fedsim.similarity import off_diagonal

Matrix = NDArray[np.float64]
COLUMNS = 4  # rounds per figure
NAMED = 20  # with more clients than this the axes have no client ids


def load_matrices(run: RunResult) -> dict[int, dict[str, Matrix]]:
    """Round -> name -> matrix, for every round in which a matrix changed."""
    return {number: read_npz(path) for number, path in matrix_files(run.folder).items()}


def order_by_labels(run: RunResult) -> list[int]:
    """The rows of the clients, ordered so that clients with similar labels are neighbors (hierarchical clustering of
    the label shares by total variation, average linkage)."""
    counts = np.array([client["labels"] for client in run.manifest["clients"]], np.float64)
    if len(counts) < 3:
        return list(range(len(counts)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    tree = hierarchy.linkage(shares, "average", metric="cityblock", optimal_ordering=True)
    return [int(row) for row in hierarchy.leaves_list(tree)]


def evenly_spaced(rounds: Sequence[int], count: int = COLUMNS) -> list[int]:
    """At most `count` of the rounds, with the first and the last one."""
    places = np.linspace(0, len(rounds) - 1, min(count, len(rounds))).round().astype(int)
    return [rounds[place] for place in dict.fromkeys(places.tolist())]


def matrix_figure(run: RunResult, path: Path, rounds: Sequence[int] | None = None) -> bool:
    """Writes a heat map for each matrix (rows) and round (columns), and below them the means over the rounds.
    Returns False, without a file, if the run recorded no matrices. The diagonal is gray: only pairs of clients
    are of interest."""
    found = load_matrices(run)
    if not found:
        return False
    shown = evenly_spaced(list(found)) if rounds is None else [number for number in rounds if number in found]
    names, order = list(found[shown[-1]]), order_by_labels(run)
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


def mean_off_diagonal(found: Mapping[int, Mapping[str, Matrix]], name: str) -> list[float]:
    """The mean over pairs of different clients, for each recorded round (Figures 4 and 5 of the SPFL paper)."""
    return [float(np.mean(off_diagonal(recorded[name]))) for recorded in found.values()]


def _range(matrices: Sequence[Matrix]) -> tuple[float, float]:
    """Lowest and highest entry, for one color scale over all rounds; never equal, even if all entries are."""
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
    """The mean of each matrix over the rounds; where clients form groups by their labels, inside and between groups."""
    lines = dict[str, list[float]]()
    for name in names:
        if groups is None:
            lines[name] = mean_off_diagonal(found, name)
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
