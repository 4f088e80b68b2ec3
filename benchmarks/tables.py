"""The results as a table for the terminal, as Markdown, and as a picture."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.comparison import Comparison, NotRun, Row, from_json
from benchmarks.load import NOISY
from benchmarks.workloads import REFERENCE, WORKLOADS

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
BUSY = "*"  # marks what was measured while other processes used the machine


def terminal(rows: Sequence[Row]) -> Table:
    shown = Table()
    shown.add_column("benchmark")
    for title in ("measured", "reference", "ratio", "lowest to highest", "limit", "others' cores"):
        shown.add_column(title, justify="right")
    for row in rows:
        if isinstance(row, NotRun):
            shown.add_row(row.name, f"not run: {row.reason}", style="dim")
            continue
        style = None if row.within_limit else "bold red"
        shown.add_row(row.name, *_numbers(row), _limit(row), f"{row.others:.1f}{_mark(row)}", style=style)
    return shown


def publish(files: Sequence[Path], page: Path | None) -> None:
    """Prints the results of several files as Markdown (of rows with the same name the last counts), or writes them into a
    page between two marks, and the picture beside it."""
    machines, rows = [], dict[str, Row]()
    for file in files:
        content = json.loads(file.read_text())
        machines.append(content["machine"])
        rows |= {row["name"]: from_json(row) for row in content["rows"]}
    text = markdown(list(rows.values()), machines[-1])
    if page is None:
        print(text)
        return
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    picture([row for row in rows.values() if isinstance(row, Comparison)], page.with_suffix(".png"))


def markdown(rows: Sequence[Row], machine: dict[str, object]) -> str:
    """A table of the rounds of training, programs by workloads, and one of everything else."""
    training, others = [r for r in rows if r.workload], [r for r in rows if not r.workload]
    facts = ", ".join(f"{name} {machine[name]}" for name in ("python", "torch", "ray", "flwr"))
    parts = [f"Measured on {machine['date']}, {machine['cores']} cores, no GPU, {facts}."]
    busy = [row for row in rows if _mark(row)]
    if busy:
        most = max(row.others for row in busy if isinstance(row, Comparison))
        parts.append(f"\\{BUSY} Measured while other processes used up to {most:.1f} cores.")
    if training:
        parts.append(_rounds(training))
    if over := [row.name for row in rows if isinstance(row, Comparison) and not row.within_limit]:
        parts.append(f"Over the limit: {'; '.join(over)}.")
    if others:
        lines = [
            f"| {row.name} | {' | '.join(_numbers(row))} | {_limit(row)} |"
            if isinstance(row, Comparison)
            else f"| {row.name} | not run: {row.reason} | | | | |"
            for row in others
        ]
        head = ["| what | measured | reference | ratio | lowest to highest | limit |", "|---|---|---|---|---|---|"]
        parts.append("\n".join([*head, *lines]))
    return "\n\n".join(parts)


def _rounds(rows: Sequence[Row]) -> str:
    names = [name for name in WORKLOADS if any(row.workload == name for row in rows)]
    cells = {(row.program, row.workload): row for row in rows}
    lines = [f"| seconds of a round (ratio to A) | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    lines += [
        f"| {program} | {' | '.join(_cell(cells.get((program, name))) for name in names)} |"
        for program in dict.fromkeys(row.program for row in rows)
    ]
    reasons = {f"{r.program}: not run on {r.workload}: {r.reason}." for r in rows if isinstance(r, NotRun)}
    return "\n".join([*lines, *(f"\n{reason}" for reason in sorted(reasons))])


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    return "not run" if isinstance(row, NotRun) else f"{row.measured:.3g} ({row.ratio:.2f}){_mark(row)}"


def _numbers(row: Comparison) -> tuple[str, str, str, str]:
    low, high = row.spread
    return (
        f"{row.measured:.3g} {row.unit}",
        f"{row.reference:.3g} {row.unit}",
        f"{row.ratio:.2f}",
        f"{low:.2f} to {high:.2f}",
    )


def _limit(row: Comparison) -> str:
    return "" if row.limit is None else f"{row.limit:g}"


def _mark(row: Row) -> str:
    return BUSY if isinstance(row, Comparison) and row.others > NOISY else ""


def picture(rows: Sequence[Comparison], path: Path) -> None:
    """Bars from 1, which is A, to each program's ratio, one panel per workload, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, NullLocator

    training = [row for row in rows if row.workload and row.program != REFERENCE]
    names = [name for name in WORKLOADS if any(row.workload == name for row in training)]
    if not names:
        return
    programs = list(dict.fromkeys(row.program for row in training))[::-1]
    low, high = min(0.8, *(row.ratio for row in training)) / 1.3, 2 * max(row.ratio for row in training)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    size = (3.2 + 3.0 * len(names), 1.4 + 0.34 * len(programs))
    figure, axes = pyplot.subplots(1, len(names), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        for row in (row for row in training if row.workload == name):
            place, color = programs.index(row.program), "tab:blue" if row.program.startswith("fedsim") else "silver"
            axis.barh(place, row.ratio - 1, left=1, color=color)
            axis.text(1.06 * max(1.0, row.ratio), place, f"{row.ratio:.2f}{_mark(row)}", va="center", fontsize=8)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set(xscale="log", title=name, xlim=(low, high))
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticklabels([f"{tick:g}" for tick in ticks])
        axis.set_yticks(range(len(programs)), programs)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("seconds of a round, as a ratio to a bare PyTorch loop (logarithmic; less is faster)", fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
