"""`fedsim report`: runs side by side, in tables and pictures."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError
from fedsim.report.runs import Run, labels


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help="runs side by side: accuracy and time")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="DIR",
        help="draw accuracy.png, and a timeline and heat maps per run, into this folder",
    )
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    runs = [Run.load(folder) for folder in args.runs]
    empty = [str(r.folder) for r in runs if not len(r.steps)]
    if empty:
        raise ConfigError(f"{empty[0]} holds no finished round yet")
    tell(runs, args.plot)
    return 0


def tell(runs: Sequence[Run], pictures: Path | None) -> None:
    """Tables on the terminal, and pictures if there is a folder for them."""
    from fedsim.report.statistics import methods
    from fedsim.report.tables import accuracy_table, method_table, show, time_table

    show(accuracy_table(runs))
    if len(found := methods(runs)) > 1:
        show(method_table(found))
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
