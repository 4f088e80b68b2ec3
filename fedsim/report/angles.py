"""The angles between the classes of a dataset, or between datasets, as tables and a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

Matrix = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]
NUMBERED = 12  # a larger matrix is drawn without numbers


@dataclass(frozen=True)
class Angles:
    """Angles in degrees between every two classes, or datasets."""

    dataset: str
    of: Literal["classes", "datasets"]
    names: tuple[str, ...]
    directions: int  # singular vectors of each
    eq2: Matrix
    principal: Matrix  # the strict smallest principal angle
    published: Mapping[tuple[int, int], float]  # Eq. 2 of a paper
    clusters: Groups  # of the classes, by Eq. 2, cut at the widest gap of merge heights
    known: Groups  # published, empty if there are none
    as_many: tuple[Groups, tuple[float, float]]  # as many clusters as published, and the thresholds that give them
    order: tuple[int, ...]  # those close to each other side by side


def angle_table(found: Angles) -> Table:
    """Classes: the matrix. Datasets: a line for each pair, with the published angle."""
    p = found.directions
    title = f"{found.dataset}: angles between {found.of} in degrees, {p} directions"
    if found.of == "classes":
        table = Table("", *found.names, title=f"{title}, Eq. 2")
        for name, row in zip(found.names, found.eq2, strict=True):
            table.add_row(name, *(f"{value:.2f}" for value in row))
        return table
    names = [f"Eq. 3 ({p} x Eq. 2)", "published", "strict principal angle"]
    table = Table("pair", "Eq. 2", "published", *names, title=title)
    for j in range(len(found.names)):
        for i in range(j):
            value, paper = found.eq2[i, j], found.published.get((i, j))
            known = ["", ""] if paper is None else [f"{paper:.2f}", f"{p * paper:.1f}"]
            strict = f"{found.principal[i, j]:.2f}"
            pair = f"{found.names[i]} - {found.names[j]}"
            table.add_row(pair, f"{value:.2f}", known[0], f"{p * value:.1f}", known[1], strict)
    return table


def cluster_lines(found: Angles) -> list[str]:
    """The super clusters that follow from the angles, and the published ones; none between datasets."""
    lines = [f"super clusters, cut at the widest gap: {_groups(found.clusters)}"] if found.clusters else []
    if found.known:
        groups, (low, high) = found.as_many
        lines.append(f"cut into {len(groups)}, at {low:.2f} to {high:.2f} degrees: {_groups(groups)}")
        same = set(map(frozenset, found.known)) == set(map(frozenset, groups))
        lines.append(f"published: {'the same' if same else _groups(found.known)}")
    return lines


def angle_figure(found: Angles, points: Matrix, owners: NDArray[np.int64], how: str) -> Figure:
    """Left: the samples in the plane, by class or dataset. Right: the angles."""
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    samples, matrix = figure.subplots(1, 2, width_ratios=(6, 5.5))
    colors = [colormaps["tab10" if len(found.names) <= 10 else "turbo"](x) for x in _places(len(found.names))]
    for number, name in enumerate(found.names):
        own = points[owners == number]
        label = name if len(found.names) <= 20 else None
        samples.scatter(own[:, 0], own[:, 1], s=7, alpha=0.6, linewidths=0, color=colors[number], label=label)
    samples.set(title=f"{found.dataset}: samples by {'class' if found.of == 'classes' else 'dataset'}, {how}")
    samples.set(xticks=[], yticks=[])
    if len(found.names) <= 20:
        samples.legend(markerscale=3, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    _draw_matrix(matrix, found)
    return figure


def _draw_matrix(axes: Axes, found: Angles) -> None:
    order = list(found.order)
    shown = found.eq2[np.ix_(order, order)]
    image = axes.imshow(shown, cmap="viridis", vmin=0)
    axes.figure.colorbar(image, ax=axes, label="degrees")
    axes.set_title(f"angle, Eq. 2, {found.directions} directions")
    if len(order) > NUMBERED:
        axes.set(xticks=[], yticks=[], xlabel=f"{found.of}, ordered by cluster")
        return
    names = [found.names[place] for place in order]
    axes.set_xticks(range(len(order)), names)
    axes.set_yticks(range(len(order)), names)
    for (i, j), value in np.ndenumerate(shown):
        color = "white" if value < 0.6 * shown.max() else "black"
        axes.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8, color=color)


def _places(count: int) -> list[float]:
    return [(i + 0.5) / (10 if count <= 10 else count) for i in range(count)]


def _groups(groups: Groups) -> str:
    return "  ".join("{" + ",".join(map(str, group)) + "}" for group in groups)
