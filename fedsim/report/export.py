"""The tables of results and costs for other programs and for papers: CSV, JSON, Markdown and LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Sequence

from fedsim.report.results import Results, sources

LATEX = {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "±": r"$\pm$"}


def as_csv(tables: Sequence[Results]) -> str:
    """One column for each mean and one for its standard deviation; empty where there is none. Accuracies from 0 to 1."""
    flat = _records(tables)
    out = io.StringIO()
    writer = csv.DictWriter(out, flat[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def as_json(tables: Sequence[Results]) -> str:
    return json.dumps(_records(tables), indent=1) + "\n"


def as_markdown(tables: Sequence[Results]) -> str:
    """Accuracies in percent; the best of a column bold, the second in italics."""

    def mark(text: str, place: int | None) -> str:
        return f"**{text}**" if place == 0 else f"*{text}*" if place == 1 else text

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"

    parts = []
    for table in tables:
        head = _head(table)
        parts.append("".join(map(line, [head, ["---"] * len(head), *_lines(table, mark)])))
    return "\n".join([*parts, *([f"Published: {found}\n"] if (found := sources(tables[0].groups)) else [])])


def as_latex(tables: Sequence[Results]) -> str:
    """A booktabs table each; the best of a column bold, the second underlined."""

    def mark(text: str, place: int | None) -> str:
        text = _latex(text)
        return rf"\textbf{{{text}}}" if place == 0 else rf"\underline{{{text}}}" if place == 1 else text

    parts = []
    for table in tables:
        head = [_latex(name) for name in _head(table)]
        body = [" & ".join(line) + r" \\" for line in _lines(table, mark)]
        columns = "l" + "r" * (len(head) - 1)
        top = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
        parts.append("\n".join([*top, *body, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n".join([*parts, *([f"% published: {found}\n"] if (found := sources(tables[0].groups)) else [])])


FORMATS: dict[str, Callable[[Sequence[Results]], str]] = {
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}


def _records(tables: Sequence[Results]) -> list[dict[str, object]]:
    """The tables side by side."""
    return [
        {key: value for record in row for key, value in record.items()}
        for row in zip(*(table.records() for table in tables), strict=True)
    ]


def _head(table: Results) -> list[str]:
    return ["setting", *(column.name for column in table.columns)]


def _lines(table: Results, mark: Callable[[str, int | None], str]) -> list[list[str]]:
    return [
        [mark(each.label, None), *(mark(c.text(row), table.place(c, row)) for c in table.columns)]
        for row, each in enumerate(table.groups)
    ]


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
