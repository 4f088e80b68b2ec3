"""The tables of results and costs as CSV, JSON, Markdown and LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Sequence

from fedsim.report.result_tables import ResultTable, published_sources

LATEX = {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "±": r"$\pm$"}


def as_csv(tables: Sequence[ResultTable]) -> str:
    """A column for each mean and one for its standard deviation, empty if there is none. Accuracies from 0 to 1."""
    records = _records(tables)
    out = io.StringIO()
    writer = csv.DictWriter(out, records[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def as_json(tables: Sequence[ResultTable]) -> str:
    """A list of one object per setting, with the keys of the CSV columns."""
    return json.dumps(_records(tables), indent=1) + "\n"


def as_markdown(tables: Sequence[ResultTable]) -> str:
    """Accuracies in percent; the best of a column in bold, the second in italics."""

    def mark(text: str, rank: int | None) -> str:
        return f"**{text}**" if rank == 0 else f"*{text}*" if rank == 1 else text

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"

    parts = []
    for table in tables:
        head = _head(table)
        parts.append("".join(map(line, [head, ["---"] * len(head), *_rows(table, mark)])))
    source = published_sources(tables[0].settings)
    return "\n".join([*parts, *([f"Published: {source}\n"] if source else [])])


def as_latex(tables: Sequence[ResultTable]) -> str:
    """A booktabs table for each; the best of a column in bold, the second underlined."""

    def mark(text: str, rank: int | None) -> str:
        text = _latex(text)
        return rf"\textbf{{{text}}}" if rank == 0 else rf"\underline{{{text}}}" if rank == 1 else text

    parts = []
    for table in tables:
        head = [_latex(name) for name in _head(table)]
        body = [" & ".join(row) + r" \\" for row in _rows(table, mark)]
        columns = "l" + "r" * (len(head) - 1)
        top = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
        parts.append("\n".join([*top, *body, r"\bottomrule", r"\end{tabular}"]) + "\n")
    source = published_sources(tables[0].settings)
    return "\n".join([*parts, *([f"% published: {source}\n"] if source else [])])


FORMATS: dict[str, Callable[[Sequence[ResultTable]], str]] = {
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}


def _records(tables: Sequence[ResultTable]) -> list[dict[str, object]]:
    """The rows of all tables, joined by setting."""
    return [
        {key: value for record in row for key, value in record.items()}
        for row in zip(*(table.records() for table in tables), strict=True)
    ]


def _head(table: ResultTable) -> list[str]:
    return ["setting", *(column.name for column in table.columns)]


def _rows(table: ResultTable, mark: Callable[[str, int | None], str]) -> list[list[str]]:
    return [
        [mark(each.label, None), *(mark(c.text(row), table.rank(c, row)) for c in table.columns)]
        for row, each in enumerate(table.settings)
    ]


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
