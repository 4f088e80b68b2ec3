"""`fedsim book`: the pages of results, one for each table and figure of the papers, and the overview of their claims."""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.book.pages import Page
    from fedsim.book.records import Record
    from fedsim.sweeps.runner import Cell


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "book", help="tables and figures of the papers: run what is missing, write a page for each"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this page (may be repeated)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/results"),
        metavar="DIR",
        help="folder of the pages (default: %(default)s)",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of the sweeps (default: %(default)s)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="data-root=DIR", help="where the datasets are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs in parallel (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="begin no run after so many minutes; go on another time"
    )
    parser.add_argument("--no-run", action="store_true", help="only write the pages, from runs and stored numbers")
    parser.add_argument("--list", action="store_true", help="list the pages and what makes them")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.book.pages import chosen_pages

    pages = chosen_pages(args.only)
    root = _data_root(args.set)
    if args.list:
        for name, page in pages.items():
            print(f"{name:<24} {page.title} [{', '.join(page.presets) or page.command}]")
        return 0
    until = time.monotonic() + 60 * args.minutes if args.minutes is not None else None
    args.out.mkdir(parents=True, exist_ok=True)
    cells = [] if args.no_run else _run(list(pages.values()), args, root, until)
    changed = {name for name, page in pages.items() if _collect(page, args, root, until)}
    write(args.out, changed)
    left, failed = sum(not cell.done for cell in cells), [cell for cell in cells if cell.status == "failed"]
    for cell in failed:
        print(f"failed: {cell.name}: {cell.failure}", file=sys.stderr)
    print(f"pages: {args.out}/overview.md" + (f"; {left} runs are left: call it again" if left else ""))
    return 1 if failed else 0


def _data_root(pairs: list[str]) -> str:
    from fedsim.config import assignments
    from fedsim.errors import ConfigError

    values = assignments(pairs)
    if strange := sorted(values.keys() - {"data-root"}):
        raise ConfigError(f"`fedsim book` sets data-root alone, not {strange[0]}: the presets say how runs are made")
    return str(values.get("data-root", ""))


def write(out: Path, changed: Collection[str] = ()) -> None:
    """Writes all pages and the overview from the stored numbers in this folder; draws what is missing or `changed`."""
    from fedsim.book.pages import read_claims, read_labels, read_pages
    from fedsim.book.records import read_store
    from fedsim.book.writing import OVERVIEW, draw_page, overview_text, page_text
    from fedsim.files import write_text

    pages, labels = read_pages(), read_labels()
    stores = {name: read_store(out / f"{name}.json") for name in pages}
    for name, page in pages.items():
        if not stores[name].records:  # none, or those of another configuration
            for suffix in ("md", "png"):
                (out / f"{name}.{suffix}").unlink(missing_ok=True)
        else:
            write_text(out / f"{name}.md", page_text(page, stores[name], labels))
            if page.picture and (name in changed or not (out / f"{name}.png").exists()):
                draw_page(page, stores[name], out / f"{name}.png", labels)
    write_text(out / OVERVIEW, overview_text(pages, stores, read_claims()))


def _run(pages: "Sequence[Page]", args: argparse.Namespace, root: str, until: float | None) -> "list[Cell]":
    """Runs the cells of all pages that are not finished; returns all cells."""
    from fedsim.commands.sweep import manifest, progress_display
    from fedsim.sweeps.runner import Cell, ray_session, run_cells

    cells: dict[Path, Cell] = {}
    for page in pages:
        for folder, sweep in page.sweeps.items():
            configs = {n: c.replace(data_root=root) if root else c for n, c in sweep.cells.items()}
            manifest(sweep, configs, ()).write(args.runs / folder)
            for name, config in configs.items():
                path = (args.runs / folder / name).resolve()
                cells.setdefault(path, Cell(f"{folder}/{name}", config.replace(out=str(path))))
    with ray_session(), progress_display(list(cells.values())) as update:
        run_cells(list(cells.values()), args.jobs, update, until=until)
    return list(cells.values())


def _collect(page: "Page", args: argparse.Namespace, root: str, until: float | None) -> bool:
    """Stores what the finished runs of a page, or its measurement, gave; a measurement is made once. Returns whether the
    stored numbers changed."""
    from fedsim.book.records import read_store
    from fedsim.distribution import installed_version

    path = args.out / f"{page.name}.json"
    before = read_store(path)
    found = _records(page, args.runs)
    if (
        page.measure
        and all(record.means for record in before.records)
        and not args.no_run
        and (until is None or time.monotonic() < until)
    ):
        from fedsim.book.measurements import MEASUREMENTS

        print(f"measuring: {page.title}", flush=True)
        found = MEASUREMENTS[page.measure](root)
    store = before.with_records(found, installed_version())
    after = dataclasses.replace(store, records=tuple(record for record in store.records if page.belongs(record)))
    if after != before:
        after.write(path)
    return after != before


def _records(page: "Page", runs: Path) -> "list[Record]":
    """A record for every finished run of the page's presets."""
    from fedsim.book.records import record_of
    from fedsim.report.runs import RunResult
    from fedsim.results.record import holds_run, read_manifest

    found = []
    for folder, sweep in page.sweeps.items():
        for name, config in sweep.cells.items():
            path = runs / folder / name
            if holds_run(path) and read_manifest(path)["status"] == "finished":
                run = RunResult.load(path)
                keys = page.keys_of(sweep.titles[name], config)
                kind = page.tables[0].of(str(keys["cell"])).split()[0] if page.picture == "curves" else ""
                run = run.only(sweep.reported) if sweep.reported else run
                found.append(record_of(run, config, keys, page.target, kind, page.picture == "clients"))
    return found
