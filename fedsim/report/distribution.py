"""How accuracy spreads over the clients of each setting."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedsim.report.figures import COLOURS
from fedsim.report.settings import Setting


def distribution_figure(found: Sequence[Setting], path: Path) -> None:
    """Writes a box plot of the clients' accuracies in the round of each setting's BMTA, a dot per client and seed."""
    figure = Figure(figsize=(2.5 + 1.1 * len(found), 4.8), layout="constrained")
    axes = figure.subplots()
    values = [np.array(list(each.clients.values())) for each in found]
    rng = np.random.default_rng(0)
    for place, own in enumerate(values):
        color = COLOURS[place % len(COLOURS)]
        axes.scatter(place + rng.uniform(-0.28, 0.28, len(own)), own, color=color, s=12, alpha=0.45, linewidths=0)
    look = {"color": "black", "linewidth": 1.3}
    axes.boxplot(
        values, positions=range(len(found)), widths=0.62, showfliers=False, medianprops=look, whis=(5, 95),
        showmeans=True, meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 6},
    )  # fmt: skip
    names = [each.label for each in found]
    axes.set_xticks(range(len(found)), names, rotation=20 if max(map(len, names)) > 8 else 0)
    axes.set(
        ylabel=f"{found[0].metric.name} on own test data",
        title="clients at their setting's best round (diamond: mean, whiskers: 5-95 %)",
    )
    axes.set_xlim(-0.6, len(found) - 0.4)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=130)
