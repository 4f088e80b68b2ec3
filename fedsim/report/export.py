"""The table of results for other programs: CSV, JSON, Markdown and LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from fedsim.report.groups import Group, Spread

TARGETED = ("rounds", "seconds")


def rows(groups: Sequence[Group], target: float | None = None) -> list[dict[str, Any]]:
    """A row per setting: label, number of seeds, and the spreads."""
    found = []
    for each in groups:
        row: dict[str, Any] = {"setting": each.label, "seeds": len(each.runs)}
        row |= {"best": each.best, "final": each.final, "worst 10 %": each.worst}
        if target is not None:
            row |= {f"rounds to {target:g}": each.rounds_to(target), f"seconds to {target:g}": each.seconds_to(target)}
        found.append(row)
    return found


def as_csv(table: Sequence[dict[str, Any]]) -> str:
    """One column for each mean and one for its standard deviation; empty where there is none."""
    flat = [_flat(row) for row in table]
    out = io.StringIO()
    writer = csv.DictWriter(out, flat[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def as_json(table: Sequence[dict[str, Any]]) -> str:
    return json.dumps([_flat(row) for row in table], indent=1) + "\n"


def as_markdown(table: Sequence[dict[str, Any]]) -> str:
    marked = _marked(table, lambda text, place: f"**{text}**" if place == 0 else f"*{text}*" if place == 1 else text)
    head = list(table[0])
    lines = [head, ["---"] * len(head), *marked]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: Sequence[dict[str, Any]]) -> str:
    """A booktabs table; the best of a column bold, the second underlined."""

    def mark(text: str, place: int) -> str:
        text = text.replace("±", r"$\pm$")
        return rf"\textbf{{{text}}}" if place == 0 else rf"\underline{{{text}}}" if place == 1 else text

    head = [name.replace("%", r"\%") for name in table[0]]
    body = [" & ".join(cell.replace("_", r"\_") for cell in line) + r" \\" for line in _marked(table, mark)]
    columns = "l" + "r" * (len(head) - 1)
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule", *body]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}"]) + "\n"


FORMATS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {name: value.mean, f"{name} std": value.std} if isinstance(value, Spread) else {name: value}
    return flat


def _marked(table: Sequence[dict[str, Any]], mark: Callable[[str, int], str]) -> list[list[str]]:
    """Cells as text, the best and the second of each column marked; equal values share a place."""
    ranks = {name: _ranking(table, name) for name in table[0] if isinstance(table[0][name], Spread)}
    lines = []
    for row in table:
        line = []
        for name, value in row.items():
            if isinstance(value, Spread):
                digits = 0 if name.split()[0] in TARGETED else 3
                place = ranks[name].index(value.mean) if value.mean in ranks[name] and len(table) > 1 else 9
                line.append(mark(value.text(digits), place))
            else:
                line.append(str(value))
        lines.append(line)
    return lines


def _ranking(table: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Distinct values, the best first: for accuracies the highest, for what it took to get there the lowest."""
    values = {row[name].mean for row in table if row[name].mean is not None}
    return sorted(values, reverse=name.split()[0] not in TARGETED)
