"""`fedsim sweep`: several runs from one file, then side by side. Runs that are finished already are not repeated."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from fedsim.cells import FAILURE, Cell, run_cells
from fedsim.commands.report import tell
from fedsim.config import RunConfig, at_least
from fedsim.report.comparison import published_table, search_table
from fedsim.report.runs import Run
from fedsim.report.tables import show
from fedsim.search import Search
from fedsim.sweep import read


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("sweep", help="several runs from one file, side by side")
    parser.add_argument("file", metavar="FILE.toml", help="a sweep file, or the name of a preset")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="override a key in every run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (default: %(default)s)")
    parser.add_argument("--retry", action="store_true", help="try failed runs again")
    parser.add_argument("--out", type=Path, help="the folder of all runs (default: runs/ and the sweep's name)")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    at_least("jobs", args.jobs, 1)
    sweep = read(args.file, args.set)
    home = args.out or Path("runs") / sweep.name
    print(f"{sweep.name}: {sweep.about or f'{len(sweep.cells)} runs'}")
    configs = dict(sweep.cells)
    if sweep.search is not None:
        configs = _choose(sweep.search, configs, home, args)
    cells = _run(configs, home, args)
    finished = [Run.load(cell.folder) for cell in cells if cell.status == "finished"]
    if finished:
        tell(finished, home)
        if sweep.published:
            show(published_table(finished, sweep.published))
    failed = [cell for cell in cells if cell.status == "failed"]
    for cell in failed:
        print(f"failed: {cell.name}: {cell.failure}", file=sys.stderr)
    print(f"run folders: {home}/*/  {len(finished)} finished, {len(failed)} failed")
    return 1 if failed else 0


def _run(configs: Mapping[str, RunConfig], home: Path, args: argparse.Namespace) -> list[Cell]:
    """Runs what is not finished yet."""
    cells = [Cell(name, config.replace(out=str(home / name))) for name, config in configs.items()]
    for cell in cells:
        cell.check()
        if args.retry:
            (cell.folder / FAILURE).unlink(missing_ok=True)
    with _watching(cells) as look:
        run_cells(cells, args.jobs, look)
    return cells


def _choose(
    search: Search, configs: Mapping[str, RunConfig], home: Path, args: argparse.Namespace
) -> dict[str, RunConfig]:
    """Every run with the values that did best on validation data; runs that differ in the seed share one search."""
    settings: dict[RunConfig, list[str]] = {}
    for name, config in configs.items():
        settings.setdefault(config.replace(seed=0), []).append(name)
    chosen: dict[str, RunConfig] = {}
    for names in settings.values():
        tried = search.candidates(configs[names[0]])
        cells = _run({f"{names[0]}-{i}": config for i, config in enumerate(tried)}, home / "search", args)
        scores = [_validation_score(cell) for cell in cells]
        show(search_table(names[0], search.points, scores))
        chosen |= {name: search.chosen(configs[name], scores) for name in names}
    return chosen


def _validation_score(cell: Cell) -> float | None:
    return float(Run.load(cell.folder).series("personal").mean.max()) if cell.status == "finished" else None


@contextmanager
def _watching(cells: Sequence[Cell]) -> Iterator[Callable[[], None]]:
    """A live table on a terminal, a line now and then in a log."""
    began = time.monotonic()
    if sys.stdout.isatty():
        with Live(_table(cells, began), refresh_per_second=4) as live:
            yield lambda: live.update(_table(cells, began))
        return
    last = [""]

    def line() -> None:
        done = sum(cell.status in ("finished", "failed") for cell in cells)
        text = f"{done} of {len(cells)} runs done"
        if text != last[0]:
            print(f"{text}, {time.monotonic() - began:.0f} s", flush=True)
            last[0] = text

    yield line


def _table(cells: Sequence[Cell], began: float) -> Table:
    marks = {
        "finished": "[green]finished",
        "failed": "[red]failed",
        "running": "[bold]running",
        "waiting": "[dim]waiting",
    }
    status = [cell.status for cell in cells]
    done = sum(s in ("finished", "failed") for s in status)
    passed = time.monotonic() - began
    left = f", about {passed / done * (len(cells) - done):.0f} s to go" if done and done < len(cells) else ""
    table = Table(title=f"{done} of {len(cells)} runs, {passed:.0f} s{left}")
    for column in ("run", "", "round", "accuracy"):
        table.add_column(column, justify="left" if column in ("run", "") else "right")
    for cell, s in zip(cells, status, strict=True):
        number, accuracy = (0, None) if s == "waiting" else cell.progress
        shown = "" if accuracy is None else f"{accuracy:.3f}"
        table.add_row(cell.name, marks[s], f"{number}/{cell.config.rounds}" if number else "", shown)
    return table
