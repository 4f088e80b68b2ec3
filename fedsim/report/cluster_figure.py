"""The clusters that a run put its clients into: over the rounds as a figure, at the end as a table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.table import Table

from fedsim.report.figures import COLOURS
from fedsim.report.runs import RunResult, display_names

NAMED = 40  # with more clients than this the axis has no client ids
LISTED = 12  # with more clusters than this there is no legend, and the table does not list their sizes
UNKNOWN_COLOUR = "#DDDDDD"


def clusters_by_round(run: RunResult) -> NDArray[np.int64]:
    """Clients x rounds: the cluster of each client after each round, -1 where it is not known; no columns without any."""
    last = max((event["round"] for event in run.events if event["kind"] == "step"), default=0)
    if not run.clusters:
        return np.zeros((len(run.clients), 0), np.int64)
    table = np.full((len(run.clients), last), -1)
    for number, clusters in sorted(run.clusters.items()):
        table[:, number - 1 :] = np.array(clusters)[:, None]
    return table


def order_by_clusters(table: NDArray[np.int64]) -> list[int]:
    """The rows of the clients: by their last cluster, then by the one before, and so on."""
    return [int(row) for row in np.lexsort(table.T)]


def cluster_figure(run: RunResult, path: Path) -> bool:
    """Writes clients x rounds in the colors of their clusters, and below the number of clusters. Returns False, without a
    file, if the run has no clusters."""
    table = clusters_by_round(run)
    if not table.size:
        return False
    figure = Figure(figsize=(10, 3.2 + 0.18 * min(len(table), 60)), layout="constrained")
    clients, counts = figure.subplots(2, 1, sharex=True, height_ratios=(max(2.0, 0.12 * min(len(table), 60)), 1))
    _clients(clients, table, [str(client) for client in run.clients])
    rounds = np.arange(1, table.shape[1] + 1)
    known = [len(set(column.tolist()) - {-1}) for column in table.T]
    counts.step(rounds, known, where="mid", color=COLOURS[0], linewidth=2)
    counts.set(xlabel="round", ylabel="clusters", ylim=(0, max(known) + 0.5))
    counts.yaxis.set_major_locator(MaxNLocator(integer=True))
    counts.xaxis.set_major_locator(MaxNLocator(integer=True))
    counts.grid(alpha=0.3)
    figure.suptitle(f"{run.config['algorithm']}: the cluster of each client")
    figure.savefig(path, dpi=130)
    return True


def _clients(axes: Axes, table: NDArray[np.int64], names: Sequence[str]) -> None:
    order, present = order_by_clusters(table), np.unique(table)
    count = int(present.max()) + 1
    many = count > len(COLOURS)
    several = [colormaps["tab20"](number % 20) if many else COLOURS[number] for number in range(count)]
    colours = ListedColormap([UNKNOWN_COLOUR, *several])
    extent = (0.5, table.shape[1] + 0.5, len(table) - 0.5, -0.5)
    shown = np.array(table[order] + 1)  # 0: not known
    axes.imshow(shown, cmap=colours, vmin=-0.5, vmax=count + 0.5, aspect="auto", interpolation="nearest", extent=extent)
    axes.set(ylabel="client, by cluster")
    axes.set_yticks(range(len(order)) if len(order) <= NAMED else [])
    if len(order) <= NAMED:
        axes.set_yticklabels([names[row] for row in order], fontsize=7)
    if len(present) <= LISTED:
        labels = {number: "not known" if number < 0 else f"cluster {number}" for number in present.tolist()}
        patches = [Patch(color=colours(number + 1), label=label) for number, label in labels.items()]
        axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def cluster_table(runs: Sequence[RunResult]) -> Table | None:
    """The clusters at the end of every run that has some; None if there is no such run."""
    table = Table(title="clusters of clients at the end")
    for column in ("run", "clusters", "clients in each", "last change (round)"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, run in zip(display_names(runs), runs, strict=True):
        if not run.clusters:
            continue
        last = max(run.clusters)
        sizes = np.unique([cluster for cluster in run.clusters[last] if cluster >= 0], return_counts=True)[1]
        told = ", ".join(map(str, sorted(sizes.tolist(), reverse=True)))
        listed = told if len(sizes) <= LISTED else f"{sizes.min()} to {sizes.max()}"
        table.add_row(name, str(len(sizes)), listed, str(last))
    return table if table.row_count else None
