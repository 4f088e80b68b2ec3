"""`python -m benchmarks [NAME ...]`: runs all benchmarks or the named ones, prints one table, keeps the numbers as JSON."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.row import Row

MODULES = (
    "messages",
    "training",
    "partitions",
    "similarity",
    "attention",
    "reports",
    "wires",
)  # each has NAME and run() -> list[Row]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="fedsim's costs beside a reference")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run (default: all): {', '.join(MODULES)}")
    names = parser.parse_args().names or MODULES
    if strange := [name for name in names if name not in MODULES]:
        parser.error(f"unknown benchmark {strange[0]!r}. Choices: {', '.join(MODULES)}")
    console, began, rows = Console(), time.monotonic(), list[Row]()
    for name in names:
        with console.status(f"{name} ..."):
            rows += import_module(f"benchmarks.{name}").run()
    console.print(table(rows))
    print(f"numbers: {save(rows)}   took {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    over = [row.name for row in rows if not row.holds]
    if over:
        print(f"over the limit: {'; '.join(over)}")
    return 1 if over else 0


def table(rows: Sequence[Row]) -> Table:
    shown = Table()
    shown.add_column("benchmark")
    for title in ("fedsim", "reference", "ratio", "lowest to highest", "limit"):
        shown.add_column(title, justify="right")
    for row in rows:
        low, high = row.spread
        limit = "" if row.limit is None else f"{row.limit:g}"
        style = None if row.holds else "bold red"
        numbers = (f"{row.ours:.3g} {row.unit}", f"{row.reference:.3g} {row.unit}", f"{row.ratio:.2f}")
        shown.add_row(row.name, *numbers, f"{low:.2f} to {high:.2f}", limit, style=style)
    return shown


def save(rows: Sequence[Row]) -> Path:
    path = Path("runs") / f"bench-{datetime.now():%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([row.json() for row in rows], indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
