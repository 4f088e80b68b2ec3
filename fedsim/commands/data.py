"""`fedsim data`: fetch or prepare a dataset, so that runs find it ready."""

import argparse
import sys
from typing import Any


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("data", help="fetch or prepare a dataset")
    parser.add_argument("name", metavar="NAME", help="a dataset of `fedsim list datasets`, or of a file ROOT/NAME.npz")
    parser.add_argument("--root", default="", metavar="DIR", help="where NAME.npz lies (default: $FEDSIM_DATA)")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from partitions.datasets import load

    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(f"preparing {args.name}", total=None)
        dataset = load(args.name, args.root, lambda done, total: bar.update(task, completed=done, total=total))
        samples = len(dataset.labels.pooled)
        bar.update(task, completed=samples, total=samples)
    trains, (channels, height, width) = len(dataset.labels.train), dataset.shape
    print(f"{args.name}: {trains} training and {samples - trains} test samples, {dataset.classes} classes, ", end="")
    print(f"images {height}x{width}x{channels}")
    return 0
