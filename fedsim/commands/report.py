"""`fedsim report`: runs side by side, in tables and pictures."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError
from fedsim.files import write_text
from fedsim.record import MANIFEST
from fedsim.report.export import FORMATS, rows
from fedsim.report.groups import group
from fedsim.report.runs import Run, labels


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help="runs side by side: accuracy and time")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of run folders")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="DIR",
        help="draw accuracy.png, and a timeline and heat maps per run, into this folder",
    )
    parser.add_argument("--html", type=Path, metavar="F", help="write one self-contained page about the runs")
    for name in FORMATS:
        parser.add_argument(f"--{name}", type=Path, metavar="F", help=f"write the table of results as {name}")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write the curves as TensorBoard event files")
    parser.add_argument("--target", type=float, metavar="ACC", help="also tell rounds and seconds to this accuracy")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    runs = select(args.runs)
    tell(runs, args.plot)
    table = rows(group(runs), args.target)
    for name, render in FORMATS.items():
        if (path := getattr(args, name)) is not None:
            write_text(path, render(table))
    if args.tensorboard is not None:
        from fedsim.report.tensorboard import write_tensorboard

        write_tensorboard(runs, args.tensorboard)
    if args.html is not None:
        from fedsim.report.page import write_page

        write_page(runs, args.html)
        print(f"page: {args.html}")
    return 0


def select(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders. What is not a run, or has no round yet, is named and left out."""
    found = []
    for folder in folders:
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
        for each in [folder] if (folder / MANIFEST).exists() or not inside else inside:
            try:
                found.append(_usable(each))
            except ConfigError as problem:
                print(f"left out: {problem}", file=sys.stderr)
    if not found:
        raise ConfigError(f"no run to report on in {', '.join(map(str, folders))}")
    return found


def _usable(folder: Path) -> Run:
    try:
        loaded = Run.load(folder)
        if len(loaded.steps) and len(loaded.series("personal").rounds):
            return loaded
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder} is not a run of this program: {type(error).__name__} {error}") from error
    raise ConfigError(f"{folder} holds no evaluated round yet")


def tell(runs: Sequence[Run], pictures: Path | None) -> None:
    """Tables on the terminal, and pictures if there is a folder for them."""
    from fedsim.report.relations import group_table
    from fedsim.report.statistics import methods
    from fedsim.report.tables import accuracy_table, method_table, show, time_table

    show(accuracy_table(runs))
    if len(found := methods(runs)) > 1:
        show(method_table(found))
    if (groups := group_table(runs)) is not None:
        show(groups)
    show(time_table(runs))
    if pictures is not None:
        from fedsim.report.distribution import distribution_figure
        from fedsim.report.figures import accuracy_figure, timeline_figure
        from fedsim.report.matrices import matrix_figure

        pictures.mkdir(parents=True, exist_ok=True)
        accuracy_figure(runs, pictures / "accuracy.png")
        accuracy_figure(runs, pictures / "accuracy-over-time.png", over="times")
        if len(found) > 1:
            distribution_figure(found, pictures / "accuracy-distribution.png")
        for name, each in zip(labels(runs), runs, strict=True):
            timeline_figure(each, pictures / f"timeline-{name}.png")
            matrix_figure(each, pictures / f"matrices-{name}.png")
        print(f"pictures: {', '.join(str(p) for p in sorted(pictures.glob('*.png')))}")
