"""A heat map of settings: a row and a column for each value of two keys, the mean over seeds in every field."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from fedsim.attacks import SUCCESS
from fedsim.errors import ConfigError, unknown
from fedsim.report.settings import MeanStd, Setting
from fedsim.results.metric import Metric

DARK = 0.5  # fields below this share of the scale get white text


@dataclass(frozen=True)
class Panel:
    """One number of every setting; `cells[row][column]`, which has no mean where there is no such setting."""

    title: str
    metric: Metric
    cells: list[list[MeanStd]]

    @property
    def range(self) -> tuple[float, float]:
        """The ends of the color scale: 0 and 1 for shares, else the lowest and the highest mean."""
        if self.metric.percent:
            return 0.0, 1.0
        means = [cell.mean for row in self.cells for cell in row if cell.mean is not None]
        return min(means), max(*means, min(means) + 1e-9)


@dataclass(frozen=True)
class HeatMap:
    row_key: str
    column_key: str
    rows: list[str]
    columns: list[str]
    panels: list[Panel]

    def text(self, panel: Panel, row: int, column: int) -> str:
        cell = panel.cells[row][column]
        form = ".1f" if panel.metric.percent else panel.metric.format
        return "" if cell.mean is None else f"{cell.mean * panel.metric.scale:{form}}"


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
        cells = [[number(placed[r, c]) if (r, c) in placed else none for c in columns] for r in rows]
        return Panel(title, metric, cells)

    metric = settings[0].metric
    panels = [panel(f"final {metric.name}", metric, _final)]
    if metric.name != SUCCESS and any(each.attack_success().count for each in settings):
        panels.append(panel("attack success", Metric(SUCCESS, "min"), Setting.attack_success))
    return HeatMap(row_key, column_key, rows, columns, panels)


def _final(each: Setting) -> MeanStd:
    kind = "global" if each.series("global") else "personal"
    return each.over_seeds(lambda series: float(series.mean[-1]), kind)


def heat_map_figure(found: HeatMap, path: Path) -> None:
    """Writes the panels side by side, with the numbers in their fields; gray: nothing was measured."""
    width, height = 1.6 + 0.72 * len(found.columns), 1.9 + 0.42 * len(found.rows)
    figure = Figure(figsize=(width * len(found.panels), height), layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(found.panels))), found.panels, strict=True):
        means = np.array([[np.nan if cell.mean is None else cell.mean for cell in row] for row in panel.cells])
        low, high = panel.range
        good = "viridis" if panel.metric.higher_is_better else "viridis_r"  # bright is good
        axes.imshow(means, cmap=good, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        axes.set_facecolor("#CCCCCC")
        for row, column in np.argwhere(~np.isnan(means)).tolist():
            share = (means[row, column] - low) / (high - low)
            bright = share if panel.metric.higher_is_better else 1 - share
            color = "white" if bright < DARK else "black"
            axes.text(column, row, found.text(panel, row, column), ha="center", va="center", fontsize=8, color=color)
        axes.set_xticks(range(len(found.columns)), found.columns, rotation=40, ha="right", fontsize=9)
        axes.set_yticks(range(len(found.rows)), found.rows, fontsize=9)
        unit = " in percent" if panel.metric.percent else ""
        axes.set(xlabel=found.column_key, ylabel=found.row_key, title=f"{panel.title}{unit}")
    figure.savefig(path, dpi=130)


def heat_map_tables(found: HeatMap) -> list[Table]:
    """The panels for the terminal."""
    tables = []
    for panel in found.panels:
        table = Table(title=f"{panel.title}{' in percent' if panel.metric.percent else ''}")
        table.add_column(f"{found.row_key} / {found.column_key}")
        for name in found.columns:
            table.add_column(name, justify="right")
        for row, name in enumerate(found.rows):
            table.add_row(name, *(found.text(panel, row, c) or "-" for c in range(len(found.columns))))
        tables.append(table)
    return tables


def heat_map_data(found: HeatMap) -> Mapping[str, Any]:
    """For the HTML page: texts, and shares of the color scale (1 is good; None: nothing was measured)."""

    def share(panel: Panel, cell: MeanStd) -> float | None:
        low, high = panel.range
        if cell.mean is None:
            return None
        place = round((cell.mean - low) / (high - low), 4)
        return place if panel.metric.higher_is_better else 1 - place

    panels = [
        {
            "title": f"{panel.title}{' in percent' if panel.metric.percent else ''}",
            "texts": [[found.text(panel, r, c) for c in range(len(found.columns))] for r in range(len(found.rows))],
            "details": [[cell.text(panel.metric.format, panel.metric.scale) for cell in row] for row in panel.cells],
            "shares": [[share(panel, cell) for cell in row] for row in panel.cells],
        }
        for panel in found.panels
    ]
    axes = {"rows": found.rows, "columns": found.columns, "keys": [found.row_key, found.column_key]}
    return {**axes, "panels": panels}
