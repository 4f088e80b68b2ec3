"""`python -m benchmarks [NAME ...]`: runs the named benchmarks, prints a table and writes a JSON file.

`python -m benchmarks table --from FILE.json ...` prints such files as Markdown; `--into PAGE.md` puts it into a page.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import rounds, tables
from benchmarks.comparison import Comparison, NotRun, Row
from benchmarks.load import load
from benchmarks.workloads import WORKLOADS

# modules of this package, each with run() -> list[Row]
MODULES = (
    "clients",
    "messages",
    "startup",
    "partitions",
    "spfl",
    "fedamp",
    "aggregators",
    "moon",
    "reports",
    "grpc",
    "safety",
    "soak",
)
NAMES = (*WORKLOADS, *MODULES)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="The costs of fedsim as ratios to a reference."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run (default: all): {', '.join(NAMES)}")
    parser.add_argument("--peers", action="store_true", help="measure other frameworks on W1, W2 and W3 as well")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each program on W1, W2, W3 (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="the file (default: runs/bench-DATE.json)")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, metavar="FILE.json", help="for `table`: results")
    parser.add_argument("--minutes", type=float, metavar="M", help="nothing is begun after so many minutes")
    parser.add_argument("--into", type=Path, metavar="PAGE.md", help="the page whose tables and picture are replaced")
    args = parser.parse_args()
    if args.into is not None and not args.into.exists():
        parser.error(f"there is no page {args.into}")
    if args.names == ["table"]:
        if not args.files:
            parser.error("table needs --from FILE.json")
        tables.publish(args.files, args.into)
        return 0
    if strange := [name for name in args.names if name not in NAMES]:
        parser.error(f"unknown benchmark {strange[0]!r}. Choices: {', '.join(NAMES)}, table")
    path = args.out or Path("runs") / f"bench-{datetime.now():%Y%m%d-%H%M%S}.json"
    code = measure(args.names or NAMES, args.turns, args.peers, path, 60 * (args.minutes or inf))
    if args.into is not None:
        tables.publish([path], args.into)
    return code


def measure(names: Sequence[str], turns: int, peers: bool, path: Path, seconds: float = inf) -> int:
    """Runs the benchmarks; the file is rewritten after each, so that a failure costs only one. Exit code 1: over a limit.
    What has not begun after so many seconds is listed as not run."""
    console, started, rows = Console(), time.monotonic(), list[Row]()
    path.parent.mkdir(parents=True, exist_ok=True)
    end = started + seconds
    for name in names:
        with console.status(f"{name} ..."):
            if time.monotonic() > end:
                rows.append(NotRun(name, f"{seconds / 60:g} minutes were over"))
            else:
                rows += rounds.run(WORKLOADS[name], turns, peers, end) if name in WORKLOADS else _measure(name)
        path.write_text(json.dumps({"machine": _machine(), "rows": [row.json() for row in rows]}, indent=1) + "\n")
    console.print(tables.terminal(rows))
    print(f"numbers: {path}   took {time.monotonic() - started:.0f} s")
    if over := [row.name for row in rows if isinstance(row, Comparison) and not row.within_limit]:
        print(f"over the limit: {'; '.join(over)}")
    return 1 if over else 0


def _measure(name: str) -> list[Row]:
    before = load()
    found: list[Row] = import_module(f"benchmarks.{name}").run()
    return [
        replace(row, load=before.average, others=before.others) if isinstance(row, Comparison) else row for row in found
    ]


def _machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("torch", "ray", "flwr", "numpy")}
    return {
        "date": f"{datetime.now():%Y-%m-%d}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **packages,
    }


if __name__ == "__main__":
    sys.exit(main())
