"""Pictures of a page, drawn from its records alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsim.book.pages import Page
from fedsim.book.records import CELL, SEED, Record, mean_and_deviation
from fedsim.report.figures import COLOURS, LINES

Columns = Mapping[str, Mapping[str, Sequence[Record]]]  # label of a column -> cell -> its records
WIDTH, ROW, DPI = 3.6, 0.28, 80


def draw(page: Page, columns: Columns, path: Path) -> None:
    """Draws the picture of a page that has one and any records."""
    cells = list(dict.fromkeys(cell for column in columns.values() for cell in column))
    kinds = {"values": _values, "curves": _curves, "clients": _clients}
    tall = max(2.2, ROW * len(cells) + 1.0) if page.picture != "curves" else 3.2
    figure = Figure(figsize=(1.6 + WIDTH * len(columns), tall), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(columns), sharey=True))
    for axes, (label, column) in zip(panels, columns.items(), strict=True):
        kinds[str(page.picture)](axes, page, column, cells)
        axes.set_title(label, fontsize=9)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if len(handles) > 1:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize=8)
    figure.savefig(path, dpi=DPI)


def _values(axes: Axes, page: Page, column: Mapping[str, Sequence[Record]], cells: Sequence[str]) -> None:
    """A row per cell: filled, ours with its deviation; hollow, published."""
    table = page.tables[0]
    for row, cell in enumerate(cells):
        own = column.get(cell, ())
        mean, deviation, _ = mean_and_deviation(own, table.of(cell)) if own else (None, None, 0)
        if mean is not None:
            axes.errorbar(mean, row, xerr=deviation, fmt="o", color=COLOURS[0], markersize=5, label="ours")
        if own and (text := page.published_of(own[0], table.of(cell))):
            axes.plot(float(text.split()[0]), row, "o", color=COLOURS[1], fillstyle="none", label="published")
    _rows(axes, cells)
    percent = table.number.split()[-1] in ("best", "final")
    axes.set_xlabel(table.title or ("accuracy in percent" if percent else table.number), fontsize=8)


def _clients(axes: Axes, page: Page, column: Mapping[str, Sequence[Record]], cells: Sequence[str]) -> None:
    """A row per cell with a dot for every client of every seed, and a bar at their mean."""
    for row, cell in enumerate(cells):
        values = [value for record in column.get(cell, ()) for value in record.clients]
        if values:
            offsets = np.linspace(-0.25, 0.25, len(values))
            axes.scatter(values, row + offsets, color=COLOURS[0], s=5, alpha=0.4, linewidths=0)
            axes.vlines(np.mean(values), row - 0.35, row + 0.35, color=COLOURS[1], linewidth=2)
    _rows(axes, cells)
    axes.set_xlabel("accuracy of a client in percent", fontsize=8)


def _curves(axes: Axes, page: Page, column: Mapping[str, Sequence[Record]], cells: Sequence[str]) -> None:
    """The mean over seeds of every cell."""
    for index, cell in enumerate(cells):
        kept = [record.curve for record in column.get(cell, ()) if record.curve]
        if not kept:
            continue
        length = min(len(curve["values"]) for curve in kept)
        x, y = (np.mean([curve[name][:length] for curve in kept], axis=0) for name in (page.over, "values"))
        colour, line = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
        axes.plot(x, y, line, color=colour, linewidth=1.6, label=cell)
    axes.set_xlabel({"rounds": "server step", "times": "virtual seconds"}[page.over], fontsize=8)
    axes.set_ylabel("accuracy in percent", fontsize=8)


def _rows(axes: Axes, cells: Sequence[str]) -> None:
    axes.set_yticks(range(len(cells)), cells, fontsize=8)
    axes.set_ylim(len(cells) - 0.5, -0.5)


def columns_of(records: Sequence[Record], label: Mapping[str, str]) -> dict[str, dict[str, list[Record]]]:
    """The records by column, which is what they have in common beside cell and seed, and by cell."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        parts = []
        for key, value in record.keys.items():
            if key not in (CELL, SEED):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                parts.append(label.get(text, text if not text.replace(".", "").isdigit() else f"{key}={text}"))
        found.setdefault(", ".join(parts), {}).setdefault(str(record.keys[CELL]), []).append(record)
    return found
