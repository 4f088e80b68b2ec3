"""Tables in Markdown."""

from collections.abc import Container, Sequence

from fedsim.parameters import parameters


def table(head: Sequence[str], rows: Sequence[Sequence[str]], centered: Container[int] = ()) -> str:
    rule = [":---:" if column in centered else "---" for column in range(len(head))]
    lines = [head, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parameter_table(kind: type | None, prefix: str = "") -> str:
    """The parameters of a dataclass; empty if it has none."""
    rows = [[f"`{prefix}{p.key}`", p.allowed, f"`{p.shown_default}`", p.meaning] for p in parameters(kind)]
    return table(["parameter", "values", "default", "meaning"], rows) if rows else ""
