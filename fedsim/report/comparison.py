"""Tables of a sweep: what a search tried, and published numbers beside ours."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from fedsim.report.groups import Spread
from fedsim.report.runs import Run
from fedsim.search import Point


def search_table(name: str, points: Sequence[Point], scores: Sequence[float | None]) -> Table:
    """Every candidate and how it did on validation data; the best is bold."""
    table = Table(title=f"search for {name}, on validation data")
    for key in points[0]:
        table.add_column(key)
    table.add_column("best mean accuracy", justify="right")
    top = max((score for score in scores if score is not None), default=None)
    for point, score in zip(points, scores, strict=True):
        text = "failed" if score is None else f"{score:.3f}"
        table.add_row(*map(_short, point.values()), text, style="bold" if score is not None and score == top else None)
    return table


def published_table(runs: Sequence[Run], published: Mapping[str, float]) -> Table:
    """Percent, mean and standard deviation over seeds; a published number belongs to the runs its name begins."""
    table = Table(title="best mean accuracy of the clients' own models, in percent")
    for column in ("run", "ours", "seeds", "published"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, value in published.items():
        own = [run for run in runs if run.folder.name == name or run.folder.name.startswith(f"{name}-")]
        ours = Spread.of([100 * float(run.series("personal").mean.max()) for run in own])
        table.add_row(name, ours.text(2), str(ours.count), f"{value:g}")
    return table


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
