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

from fedsim.cells import Cell, run_cells, workers
from fedsim.commands.report import tell
from fedsim.config import RunConfig, at_least
from fedsim.plan import Plan, Planned, Trial
from fedsim.report.runs import Run
from fedsim.report.selection import select
from fedsim.search import Search
from fedsim.sweep import Sweep, read

MARKS = {"running": "[bold]running", "failed": "[red]failed", "finished": "[green]finished", "waiting": "[dim]left"}
LINES = 24  # rows of the live table


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("sweep", help="several runs from one file, side by side")
    parser.add_argument("file", metavar="FILE.toml", help="a sweep file, or the name of a preset")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="override a key in every run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (default: %(default)s)")
    parser.add_argument("--retry", action="store_true", help="try failed runs again")
    parser.add_argument("--out", type=Path, help="the folder of all runs (default: runs/ and the sweep's name)")
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="join this Ray cluster, which sees the same folders")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    at_least("jobs", args.jobs, 1)
    sweep = read(args.file, args.set)
    home: Path = args.out or Path("runs") / sweep.name
    print(f"{sweep.name}: {sweep.about or f'{len(sweep.cells)} runs'}")
    configs, trials = dict(sweep.cells), list[Trial]()
    with workers():
        if sweep.search is not None:
            configs, trials = _choose(sweep.search, configs, home, args)
        _plan(sweep, configs, trials).write(home)
        cells = _run(configs, home, args)
    finished, failed = ([cell for cell in cells if cell.status == status] for status in ("finished", "failed"))
    if finished:
        from fedsim.report.page import write_page

        found = select([home])
        tell(found, home)
        write_page(found, home / "report.html")
        print(f"page: {home / 'report.html'}")
    for cell in failed:
        print(f"failed: {cell.name}: {cell.failure}", file=sys.stderr)
    print(f"run folders: {home}/*/  {len(finished)} finished, {len(failed)} failed")
    return 1 if failed else 0


def _plan(sweep: Sweep, configs: Mapping[str, RunConfig], trials: Sequence[Trial]) -> Plan:
    """What reports will find in the sweep's folder."""

    scale = sweep.scale.partition(":")[0]
    origin = sweep.published.source + (f"; ours at {scale}" if scale else "")

    def planned(name: str, config: RunConfig) -> Planned:
        beside = sweep.published.beside(sweep.titles[name], config)
        asked = {key: value for key, value in config.flat().items() if key not in ("out", "resume")}
        return Planned(asked, sweep.titles[name], beside, origin if beside else "")

    return Plan(sweep.name, sweep.about, {name: planned(name, c) for name, c in configs.items()}, list(trials))


def _run(configs: Mapping[str, RunConfig], home: Path, args: argparse.Namespace) -> list[Cell]:
    """Runs what is not finished yet."""
    cells = [Cell(name, config.replace(out=str((home / name).resolve()))) for name, config in configs.items()]
    for cell in cells:
        if args.retry:
            cell.retry()
    with _watching(cells) as look:
        run_cells(cells, args.jobs, look, args.ray_address)
    return cells


def _choose(
    search: Search, configs: Mapping[str, RunConfig], home: Path, args: argparse.Namespace
) -> tuple[dict[str, RunConfig], list[Trial]]:
    """Every run with the values that did best on validation data; runs that differ in the seed share one search."""
    settings: dict[RunConfig, list[str]] = {}
    for name, config in configs.items():
        settings.setdefault(config.replace(seed=0), []).append(name)
    firsts = [names[0] for names in settings.values()]
    tried = {f"{name}-{i}": c for name in firsts for i, c in enumerate(search.candidates(configs[name]))}
    cells = {cell.name: cell for cell in _run(tried, home / "search", args)}
    chosen: dict[str, RunConfig] = {}
    trials: list[Trial] = []
    for names in settings.values():
        scores = [_validation_score(cells[f"{names[0]}-{i}"]) for i in range(len(search.points))]
        trials.append(Trial(names[0], [dict(point) for point in search.points], scores))
        chosen |= {name: search.chosen(configs[name], scores) for name in names}
    return {name: chosen[name] for name in configs}, trials


def _validation_score(cell: Cell) -> float | None:
    return float(Run.load(cell.folder).series("personal").mean.max()) if cell.status == "finished" else None


@contextmanager
def _watching(cells: Sequence[Cell]) -> Iterator[Callable[[], None]]:
    """A live table on a terminal, a line now and then in a log."""
    began = time.monotonic()
    if sys.stdout.isatty():
        with Live(cells_table(cells, 0.0), refresh_per_second=4) as live:
            yield lambda: live.update(cells_table(cells, time.monotonic() - began))
        return
    last = -1

    def line() -> None:
        nonlocal last
        if (done := sum(cell.done for cell in cells)) != last:
            print(f"{done} of {len(cells)} runs done, {time.monotonic() - began:.0f} s", flush=True)
            last = done

    yield line


def cells_table(cells: Sequence[Cell], passed: float) -> Table:
    """What runs now, what failed, what is finished and what is left; and how long it will take at this speed."""
    progress = {cell.name: cell.progress() for cell in cells if cell.status == "running"}
    earned = sum(1.0 if cell.done else _share(cell, progress) for cell in cells if not cell.before)
    ahead = sum(not cell.before for cell in cells) - earned
    to_go = f", about {_time(passed / earned * ahead)} to go" if earned and ahead else ""
    counts = ", ".join(
        f"{sum(cell.status == status for cell in cells)} {word}"
        for status, word in (("finished", "done"), ("running", "running"), ("failed", "failed"), ("waiting", "left"))
    )
    table = Table(title=f"{counts}; {_time(passed)}{to_go}")
    for column in ("run", "", "round", "accuracy"):
        table.add_column(column, justify="left" if column in ("run", "") else "right")
    shown = sorted(cells, key=lambda cell: list(MARKS).index(cell.status))
    for cell in shown[:LINES]:
        number, accuracy = progress.get(cell.name, (0, None))
        percent = "" if accuracy is None else f"{100 * accuracy:.1f} %"
        table.add_row(cell.name, MARKS[cell.status], f"{number}/{cell.config.rounds}" if number else "", percent)
    if len(shown) > LINES:
        table.caption = f"and {len(shown) - LINES} more"
    return table


def _share(cell: Cell, progress: Mapping[str, tuple[int, float | None]]) -> float:
    return progress[cell.name][0] / cell.config.rounds if cell.name in progress else 0.0


def _time(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
