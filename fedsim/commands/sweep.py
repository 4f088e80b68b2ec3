"""`fedsim sweep`: the runs of a sweep file, then a report on them. Finished runs are not repeated."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.commands.report import print_report

if TYPE_CHECKING:
    from rich.table import Table

    from fedsim.config import RunConfig
    from fedsim.sweeps.manifest import SearchResult, SweepManifest
    from fedsim.sweeps.runner import Cell
    from fedsim.sweeps.sweep_file import Sweep

MARKS = {"running": "[bold]running", "failed": "[red]failed", "finished": "[green]finished", "waiting": "[dim]left"}
ROWS = 24  # of the live table


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("sweep", help="run and compare the runs of a sweep file")
    parser.add_argument("file", metavar="FILE.toml", help="a sweep file, or the name of a preset")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="override a key in every run")
    parser.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, help="runs in parallel (default: %(default)s)"
    )
    parser.add_argument("--retry", action="store_true", help="repeat failed runs")
    parser.add_argument("--out", type=Path, help="the folder of all runs (default: runs/ and the sweep's name)")
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT", help="join this Ray cluster, whose machines share the folders"
    )
    parser.add_argument("--dry-run", action="store_true", help="tell what the sweep would be and cost; write nothing")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.sweeps.runner import Cell, ray_session
    from fedsim.sweeps.sweep_file import read_sweep

    sweep = read_sweep(args.file, args.set)
    home: Path = args.out or Path("runs") / sweep.name
    print(f"{sweep.name}: {sweep.about or f'{len(sweep.cells)} runs'}")
    if args.dry_run:
        from fedsim.commands.dry_run import show_sweep

        show_sweep(sweep, home, args.jobs)
        return 0
    configs: Mapping[str, RunConfig] = sweep.cells
    searches: Sequence[SearchResult] = ()
    with ray_session():
        if sweep.search is not None:
            from fedsim.sweeps.study import run_search

            configs, searches = run_search(sweep.search, configs, home, lambda cells: _run(cells, args), args.retry)
        manifest(sweep, configs, searches).write(home)
        cells = [Cell(name, config.replace(out=str((home / name).resolve()))) for name, config in configs.items()]
        _run(cells, args)
    finished, failed = ([cell for cell in cells if cell.status == status] for status in ("finished", "failed"))
    if finished:
        _report(home)
    for cell in failed:
        print(f"failed: {cell.name}: {cell.failure}", file=sys.stderr)
    print(f"run folders: {home}/*/  {len(finished)} finished, {len(failed)} failed")
    return 1 if failed else 0


def manifest(sweep: "Sweep", configs: "Mapping[str, RunConfig]", searches: "Sequence[SearchResult]") -> "SweepManifest":
    """What reports need to know of a sweep: its runs, and the published numbers of each."""
    from fedsim.results.record import asked
    from fedsim.sweeps.manifest import PlannedRun, SweepManifest

    scale = sweep.scale.partition(":")[0]
    source = sweep.published.source + (f"; ours at {scale}" if scale else "")

    def planned(name: str, config: "RunConfig") -> PlannedRun:
        numbers = sweep.published.numbers_for(sweep.titles[name], config)
        title, baseline = sweep.titles[name], sweep.baselines.get(name, "")
        return PlannedRun(asked(config), title, numbers, source if numbers else "", baseline, sweep.reported)

    runs = {name: planned(name, config) for name, config in configs.items()}
    return SweepManifest(sweep.name, sweep.about, runs, list(searches), sweep.heatmap)


def _report(home: Path) -> None:
    """Prints the report and writes report.html; with several objectives, one report and report-OBJECTIVE.html for
    each."""
    from fedsim.report.collection import collect_runs
    from fedsim.report.page import write_page

    parts = collect_runs([home]).by_objective()
    for objective, found in parts.items():
        print_report(found, home)
        page = home / ("report.html" if len(parts) == 1 else f"report-{objective}.html")
        write_page(found, page)
        print(f"page: {page}")


def _run(cells: "list[Cell]", args: argparse.Namespace) -> None:
    """Runs the cells that are not finished."""
    from fedsim.sweeps.runner import run_cells

    for cell in cells:
        if args.retry:
            cell.retry()
    with progress_display(cells) as update:
        run_cells(cells, args.jobs, update, args.ray_address)


@contextmanager
def progress_display(cells: "Sequence[Cell]") -> Iterator[Callable[[], None]]:
    """Yields a function that updates a live table on a terminal, or prints a line for every run that ends."""
    started = time.monotonic()
    if sys.stdout.isatty():
        from rich.live import Live

        with Live(cells_table(cells, 0.0), refresh_per_second=4) as live:
            yield lambda: live.update(cells_table(cells, time.monotonic() - started))
        return
    last = -1

    def line() -> None:
        nonlocal last
        if (done := sum(cell.done for cell in cells)) != last:
            print(f"{done} of {len(cells)} runs done, {time.monotonic() - started:.0f} s", flush=True)
            last = done

    yield line


def cells_table(cells: "Sequence[Cell]", passed: float) -> "Table":
    """The status of the cells after `passed` seconds, and the estimated remaining time."""
    from rich.table import Table

    progress = {cell.name: cell.progress() for cell in cells if cell.status == "running"}
    completed = sum(1.0 if cell.done else _share(cell, progress) for cell in cells if not cell.was_done)
    remaining = sum(not cell.was_done for cell in cells) - completed
    to_go = f", about {_time(passed / completed * remaining)} to go" if completed and remaining else ""
    counts = ", ".join(
        f"{sum(cell.status == status for cell in cells)} {word}"
        for status, word in (("finished", "done"), ("running", "running"), ("failed", "failed"), ("waiting", "left"))
    )
    table = Table(title=f"{counts}; {_time(passed)}{to_go}")
    for column in ("run", "", "round", "personal"):
        table.add_column(column, justify="left" if column in ("run", "") else "right")
    shown = sorted(cells, key=lambda cell: list(MARKS).index(cell.status))
    for cell in shown[:ROWS]:
        number, mean = progress.get(cell.name, (0, None))
        value = "" if mean is None else cell.metric.text(mean)
        table.add_row(cell.name, MARKS[cell.status], f"{number}/{cell.config.rounds}" if number else "", value)
    if len(shown) > ROWS:
        table.caption = f"and {len(shown) - ROWS} more"
    return table


def _share(cell: "Cell", progress: Mapping[str, tuple[int, float | None]]) -> float:
    """The share of its rounds that a running cell has completed."""
    return progress[cell.name][0] / cell.config.rounds if cell.name in progress else 0.0


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
