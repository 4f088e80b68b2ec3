"""`fedsim report`: runs side by side, in tables and pictures."""

import argparse
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError
from fedsim.files import write_text
from fedsim.report.export import FORMATS
from fedsim.report.results import costs, results, sources
from fedsim.report.runs import labels
from fedsim.report.selection import Selection, select

DRAWN = 12  # settings with a timeline and heat maps of their own


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help="runs side by side: accuracy, time and costs")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of run folders")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="DIR",
        help="draw curves and clients, and a timeline and heat maps of the first run of each setting, into this folder",
    )
    parser.add_argument("--html", type=Path, metavar="F", help="write one self-contained page about the runs")
    for name in FORMATS:
        parser.add_argument(
            f"--{name}", type=Path, metavar="F", help=f"write the tables of results and costs as {name}"
        )
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write the curves as TensorBoard event files")
    parser.add_argument(
        "--target",
        type=float,
        metavar="ACC",
        help="also tell rounds, virtual seconds and bytes to this accuracy (0 to 1)",
    )
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    if args.target is not None and not 0 < args.target <= 1:
        raise ConfigError(f"--target must be above 0 and at most 1, not {args.target:g}")
    found = select(args.runs)
    tell(found, args.plot, args.target)
    tables = [results(found.groups, args.target), costs(found.groups)]
    for name, render in FORMATS.items():
        if (path := getattr(args, name)) is not None:
            write_text(path, render(tables))
    if args.tensorboard is not None:
        from fedsim.report.tensorboard import write_tensorboard

        write_tensorboard(found.runs, args.tensorboard)
    if args.html is not None:
        from fedsim.report.page import write_page

        write_page(found, args.html, args.target)
        print(f"page: {args.html}")
    return 0


def tell(found: Selection, pictures: Path | None, target: float | None = None) -> None:
    """Tables on the terminal, and pictures if there is a folder for them."""
    from fedsim.report.relations import group_table
    from fedsim.report.tables import pairs_table, results_table, search_table, show, time_table

    for trial in found.trials:
        show(search_table(trial))
    table = results_table("accuracy in percent: clients' own models on their own tests", results(found.groups, target))
    origin = sources(found.groups)
    table.caption = "best: BMTA. worst 10 %: of the clients, at the end. p: Wilcoxon over clients, Holm." + (
        f"\npublished: {origin}" if origin else ""
    )
    show(table)
    if (pairs := pairs_table(found.groups)) is not None:
        show(pairs)
    if (together := group_table(found.runs)) is not None:
        show(together)
    show(time_table(found.groups))
    show(results_table("costs of a run: seconds of this machine, megabytes", costs(found.groups)))
    if pictures is not None:
        _draw(found, pictures)


def _draw(found: Selection, pictures: Path) -> None:
    from fedsim.report.distribution import distribution_figure
    from fedsim.report.figures import accuracy_figure, timeline_figure
    from fedsim.report.matrices import matrix_figure

    pictures.mkdir(parents=True, exist_ok=True)
    there = [each for each in found.groups if each.runs]
    accuracy_figure(found.runs, pictures / "accuracy.png")
    accuracy_figure(found.runs, pictures / "accuracy-over-time.png", over="times")
    if len(there) > 1:
        distribution_figure(there, pictures / "accuracy-distribution.png")
    firsts = [each.runs[0] for each in there][:DRAWN]
    for name, each in zip(labels(firsts), firsts, strict=True):
        timeline_figure(each, pictures / f"timeline-{name}.png")
        matrix_figure(each, pictures / f"matrices-{name}.png")
    print(f"pictures: {pictures}/*.png ({len(list(pictures.glob('*.png')))} of them)")
