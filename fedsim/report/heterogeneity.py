"""How heterogeneous the data of a run's clients is, as tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from rich.table import Table

from fedsim.report.figures import COLOURS

Matrix = NDArray[np.float64]
SHOWN = 20  # clients listed one by one in the terminal; a longer list is shown by its ends

# Key of a distance -> its name and unit in tables.
DISTANCES = {"eq2": "Eq. 2 (degrees)", "eq3": "Eq. 3 (degrees)", "emd": "EMD (deviations)", "1-cka": "1 - CKA"}


@dataclass(frozen=True)
class Heterogeneity:
    """What each client of a run holds, and how far the clients are from each other."""

    dataset: str
    partition: str
    seed: int
    trains: NDArray[np.int64]  # training samples per client
    tests: NDArray[np.int64]  # test samples per client
    counts: NDArray[np.int64]  # clients x classes, of the training samples; no columns if there are no class labels
    entropy: Matrix  # of the training labels, per client, in bits
    distances: Mapping[str, Matrix]  # clients x clients, by a key of DISTANCES
    order: Sequence[int]  # the clients, those with similar data side by side
    unseen: Sequence[int] = ()  # clients that are kept out of training

    @property
    def name(self) -> str:
        return f"{self.dataset}, {self.partition}, {len(self.tests)} clients, seed {self.seed}"

    def mean_distance(self, key: str) -> float:
        """Over all pairs of different clients; 0 for a single client."""
        clients = len(self.tests)
        return float(self.distances[key].sum() / (clients * (clients - 1))) if clients > 1 else 0.0

    def as_json(self) -> dict[str, Any]:
        held = [np.flatnonzero(row).tolist() for row in self.counts]
        return {
            "dataset": self.dataset,
            "partition": self.partition,
            "seed": self.seed,
            "clients": [
                {"train": int(n), "test": int(t), "entropy": round(float(e), 4), "labels": own, "counts": row.tolist()}
                for n, t, e, own, row in zip(self.trains, self.tests, self.entropy, held, self.counts, strict=True)
            ],
            **({"unseen": list(self.unseen)} if self.unseen else {}),
            "mean_distance": {key: round(self.mean_distance(key), 6) for key in self.distances},
            "order": list(self.order),
        }


def client_table(found: Heterogeneity) -> Table:
    """One line per client, of many clients the first and the last; without class labels only sizes."""
    table = Table(title=found.name)
    columns = ["client", "train", "test"]
    columns += ["classes", "entropy (bits)", "most frequent labels"] if found.counts.size else []
    for column in columns:
        table.add_column(column, justify="left" if column.startswith("most") else "right")
    clients = len(found.tests)
    half = SHOWN // 2
    for client in range(clients):
        if clients > SHOWN and half <= client < clients - half:
            if client == half:
                table.add_row(*["..."] * (len(columns) - 1), f"({clients - SHOWN} more: --json lists all)")
            continue
        row = found.counts[client]
        often = [label for label in np.argsort(-row, kind="stable")[:5] if row[label]]
        listed = ", ".join(f"{label}: {row[label]}" for label in often)
        of_labels = (str(np.count_nonzero(row)), f"{found.entropy[client]:.2f}", listed) if row.size else ()
        name = f"{client} (unseen)" if client in found.unseen else str(client)
        table.add_row(name, str(found.trains[client]), str(found.tests[client]), *of_labels)
    return table


def distance_table(results: Sequence[Heterogeneity]) -> Table:
    """The mean distance between two clients, and the ranges of sizes and labels: one line per partition."""
    table = Table(title=f"mean distance between two clients of {results[0].dataset}")
    keys = list(results[0].distances)
    for column in ("partition", *(DISTANCES[key] for key in keys), "train", "classes", "entropy"):
        table.add_column(column, justify="left" if column == "partition" else "right", no_wrap=column == "partition")
    for found in results:
        classes = np.count_nonzero(found.counts, axis=1)
        table.add_row(
            found.partition,
            *(f"{found.mean_distance(key):.3f}" for key in keys),
            f"{found.trains.min()}-{found.trains.max()}",
            f"{classes.min()}-{classes.max()}",
            f"{found.entropy.mean():.2f}",
        )
    return table


def heterogeneity_figure(found: Heterogeneity, measure: str = "eq2") -> Figure:
    """Labels per client (if there are classes), sizes, and the distance matrix."""
    figure = Figure(figsize=(13, 6), layout="constrained")
    figure.suptitle(found.name)
    grid = figure.add_gridspec(2, 2, width_ratios=(7, 6), height_ratios=(2, 1))
    if found.counts.size:
        labels = figure.add_subplot(grid[0, 0])
        _draw_labels(labels, found)
        _draw_sizes(figure.add_subplot(grid[1, 0], sharex=labels), found)
    else:
        _draw_sizes(figure.add_subplot(grid[:, 0]), found)
    _draw_distances(figure.add_subplot(grid[:, 1]), found, measure, _top([found], measure))
    return figure


def comparison_figure(results: Sequence[Heterogeneity], measure: str = "eq2") -> Figure:
    """The distance matrices of several splits on one color scale."""
    figure = Figure(figsize=(4.6 * len(results) + 1, 5.2), layout="constrained")
    clients = len(results[0].tests)
    figure.suptitle(f"distance between clients' data, {DISTANCES[measure]}: {results[0].dataset}, {clients} clients")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, found in zip(panels, results, strict=True):
        _draw_distances(axes, found, measure, _top(results, measure), bar=found is results[-1])
        axes.set_title(f"{found.partition}\nmean {found.mean_distance(measure):#.3g}")
    return figure


LayerSimilarity = Mapping[str, Matrix]  # name of a layer -> clients x clients


def layer_table(found: Mapping[str, LayerSimilarity]) -> Table:
    """The mean CKA between two clients' models: one line per split, one column per layer."""
    layers = list(next(iter(found.values())))
    table = Table("partition", *layers, title="mean CKA between two clients' models, by layer")
    for partition, matrices in found.items():
        table.add_row(partition, *(f"{_mean_of_pairs(matrices[layer]):.3f}" for layer in layers))
    return table


def layer_figure(found: Mapping[str, LayerSimilarity], name: str) -> Figure:
    """CKA between the clients' models: a row per split, a column per layer."""
    layers = list(next(iter(found.values())))
    figure = Figure(figsize=(2.5 * len(layers) + 1.2, 2.7 * len(found) + 0.6), layout="constrained")
    figure.suptitle(f"CKA between clients' models: {name}")
    panels = figure.subplots(len(found), len(layers), squeeze=False)
    for row, (partition, matrices) in zip(panels, found.items(), strict=True):
        for axes, layer in zip(row, layers, strict=True):
            image = axes.imshow(matrices[layer], cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
            axes.set_title(f"{layer}, mean {_mean_of_pairs(matrices[layer]):.2f}", fontsize=9)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(partition)
    figure.colorbar(image, ax=panels, label="CKA")
    return figure


def _mean_of_pairs(matrix: Matrix) -> float:
    """Over all pairs of different clients."""
    n = len(matrix)
    return float((matrix.sum() - np.trace(matrix)) / (n * (n - 1))) if n > 1 else float("nan")


def _draw_labels(axes: Axes, found: Heterogeneity) -> None:
    shares = found.counts / np.maximum(found.trains, 1)[:, None]
    image = axes.imshow(shares.T, aspect="auto", cmap="cividis", vmin=0, interpolation="nearest", origin="lower")
    axes.set(ylabel="class", title="share of each class in a client's training data")
    axes.tick_params(labelbottom=False)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _bar(axes, image, "share")


def _draw_sizes(axes: Axes, found: Heterogeneity) -> None:
    clients = np.arange(len(found.tests))
    width = 0.9 if len(clients) <= 100 else 1.0  # gaps between very many bars look like a pattern
    axes.bar(clients, found.trains, width=width, color=COLOURS[0], label="training")
    axes.plot(clients, found.tests, "o", color=COLOURS[1], markersize=4, label="test")
    axes.set(xlabel="client", ylabel="samples", xlim=(-0.5, len(clients) - 0.5))
    axes.set_ylim(0, 1.3 * max(found.trains.max(), found.tests.max()))  # room for the legend
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper right", ncols=2, frameon=False)


def _draw_distances(axes: Axes, found: Heterogeneity, measure: str, top: float, bar: bool = True) -> None:
    order = np.array(found.order)
    matrix = found.distances[measure][np.ix_(order, order)]
    image = axes.imshow(matrix, cmap="viridis", vmin=0, vmax=top, interpolation="nearest")
    axes.set(title="distance between clients' data", xlabel="clients, ordered by cluster", ylabel="")
    if len(order) <= SHOWN:
        axes.set_xticks(range(len(order)), [str(client) for client in order])
        axes.set_yticks(range(len(order)), [str(client) for client in order])
    else:
        axes.set(xticks=[], yticks=[])
    if bar:
        _bar(axes, image, DISTANCES[measure])


def _bar(axes: Axes, image: Any, label: str) -> None:
    axes.figure.colorbar(image, ax=axes, label=label)


def _top(results: Sequence[Heterogeneity], measure: str) -> float:
    """The common end of the color scale, above 0 even if all clients hold the same data."""
    return max(1e-9, *(float(found.distances[measure].max()) for found in results))
