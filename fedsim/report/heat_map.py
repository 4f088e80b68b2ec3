"""A heat map of settings: a row and a column for each value of two keys, the mean over seeds in every field."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from fedsim.attacks import SUCCESS
from fedsim.errors import ConfigError, unknown
from fedsim.report.settings import MeanStd, Setting
from fedsim.results.metric import Metric

DARK = 0.5  # fields below this brightness get white text
LEAST = 0.1  # between the two ends of a color scale of accuracies and other shares


@dataclass(frozen=True)
class Panel:
    """One number of every setting, without the rows in which nothing was measured. `cells[row][column]` has no mean where
    there is no such setting."""

    title: str
    metric: Metric
    rows: list[str]
    cells: list[list[MeanStd]]

    def text(self, row: int, column: int) -> str:
        cell = self.cells[row][column]
        form = ".1f" if self.metric.percent else self.metric.format
        return "" if cell.mean is None else f"{cell.mean * self.metric.scale:{form}}"

    def brightness(self) -> NDArray[np.float64]:
        """For every field, from 1 for the best mean to 0 for the worst, or for LEAST below the best; NaN: no mean."""
        means = np.array([[np.nan if cell.mean is None else cell.mean for cell in row] for row in self.cells])
        best = np.nanmax(means) if self.metric.higher_is_better else np.nanmin(means)
        behind = np.abs(means - best)
        return np.asarray(1 - behind / max(np.nanmax(behind), LEAST if self.metric.percent else 1e-9), np.float64)


@dataclass(frozen=True)
class HeatMap:
    row_key: str
    column_key: str
    columns: list[str]
    panels: list[Panel]


def heat_map(settings: Sequence[Setting], keys: Sequence[str]) -> HeatMap:
    """The final metric of the global models (of personal ones where there are none), and the success of attacks if it was
    measured. Raises ConfigError for a key that the settings do not have, and if two settings share a field."""
    row_key, column_key = keys
    for key in keys:
        if not all(key in each.config for each in settings):
            unknown("key of a heat map", key, sorted(set.intersection(*(set(each.config) for each in settings))))
    placed: dict[tuple[str, str], Setting] = {}
    for each in settings:
        place = str(each.config[row_key]), str(each.config[column_key])
        if place in placed:
            both = f"{placed[place].label!r} and {each.label!r}"
            raise ConfigError(
                f"{both} have the same {row_key} and {column_key}: a heat map shows one setting in a field"
            )
        placed[place] = each
    rows, columns = ([*dict.fromkeys(place[axis] for place in placed)] for axis in (0, 1))

    def panel(title: str, metric: Metric, number: Callable[[Setting], MeanStd]) -> Panel:
        none = MeanStd.of([None])
        cells = {r: [number(placed[r, c]) if (r, c) in placed else none for c in columns] for r in rows}
        kept = {name: row for name, row in cells.items() if any(cell.mean is not None for cell in row)}
        unit = " in percent" if metric.percent else ""
        return Panel(f"{title}{unit}", metric, list(kept), list(kept.values()))

    metric = settings[0].metric
    panels = [panel(f"final {metric.name}", metric, _final)]
    if metric.name != SUCCESS and any(each.attack_success().count for each in settings):
        panels.append(panel("attack success", Metric(SUCCESS, "min"), Setting.attack_success))
    return HeatMap(row_key, column_key, columns, panels)


def _final(each: Setting) -> MeanStd:
    kind = "global" if each.series("global") else "personal"
    return each.over_seeds(lambda series: float(series.mean[-1]), kind)


def heat_map_figure(found: HeatMap, path: Path) -> None:
    """Writes the panels one below the other, with the numbers in their fields; gray: nothing was measured."""
    heights = [len(panel.rows) + 2 for panel in found.panels]
    figure = Figure(figsize=(1.8 + 0.72 * len(found.columns), 1 + 0.36 * sum(heights)), layout="constrained")
    several = np.atleast_1d(figure.subplots(len(found.panels), 1, height_ratios=heights))
    for axes, panel in zip(several, found.panels, strict=True):
        bright = panel.brightness()
        axes.imshow(bright, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_facecolor("#CCCCCC")
        for row, column in np.argwhere(~np.isnan(bright)).tolist():
            color = "white" if bright[row, column] < DARK else "black"
            axes.text(column, row, panel.text(row, column), ha="center", va="center", fontsize=8, color=color)
        axes.set_xticks(range(len(found.columns)), found.columns, rotation=30, ha="right", fontsize=9)
        axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=9)
        axes.set(ylabel=found.row_key, title=panel.title)
    several[-1].set_xlabel(found.column_key)
    figure.savefig(path, dpi=130)


def heat_map_tables(found: HeatMap) -> list[Table]:
    """The panels for the terminal."""
    tables = []
    for panel in found.panels:
        table = Table(title=panel.title)
        table.add_column(f"{found.row_key} / {found.column_key}")
        for name in found.columns:
            table.add_column(name, justify="right")
        for row, name in enumerate(panel.rows):
            table.add_row(name, *(panel.text(row, c) or "-" for c in range(len(found.columns))))
        tables.append(table)
    return tables


def heat_map_data(found: HeatMap) -> dict[str, Any]:
    """For the HTML page: texts with and without deviations, and the brightness of every field."""
    panels = [
        {
            "title": panel.title,
            "rows": panel.rows,
            "texts": [[panel.text(r, c) for c in range(len(found.columns))] for r in range(len(panel.rows))],
            "details": [[cell.text(panel.metric.format, panel.metric.scale) for cell in row] for row in panel.cells],
            "shares": [[None if np.isnan(b) else round(b, 4) for b in row] for row in panel.brightness().tolist()],
        }
        for panel in found.panels
    ]
    return {"keys": [found.row_key, found.column_key], "columns": found.columns, "panels": panels}
