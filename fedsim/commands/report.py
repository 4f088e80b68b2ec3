"""`fedsim report`: tables, figures and files that compare runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.results.waiting import waiting

if TYPE_CHECKING:
    from fedsim.report.collection import RunCollection

FORMATS = ("csv", "json", "markdown", "latex")
DRAWN = 12  # settings that get a timeline, heat maps and clusters
CURVES = 28  # with more settings than this, their curves and clients are not drawn: nobody could tell them apart


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("report", help="compare runs: metrics, time and costs")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders of run folders")
    parser.add_argument("--metric", metavar="NAME", help="the metric to report (default: the main metric of the runs)")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="DIR",
        help="write figures to this folder: curves, clients; timeline, heat maps and clusters of a run of each setting",
    )
    parser.add_argument("--html", type=Path, metavar="F", help="write one self-contained HTML page")
    for name in FORMATS:
        parser.add_argument(
            f"--{name}", type=Path, metavar="F", help=f"write the tables of results and costs as {name}"
        )
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write the curves as TensorBoard event files")
    parser.add_argument(
        "--target",
        type=float,
        metavar="VALUE",
        help="also report rounds, virtual seconds and bytes until the metric reaches this value (accuracy: 0 to 1)",
    )
    parser.add_argument(
        "--heatmap",
        nargs=2,
        default=(),
        metavar=("ROWS", "COLUMNS"),
        help="a heat map with a row and a column for each value of two keys, such as attack aggregator",
    )
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.files import write_text
    from fedsim.report import export
    from fedsim.report.collection import collect_runs
    from fedsim.report.result_tables import cost_table, result_table

    with waiting("reading the runs"):
        found = collect_runs(args.runs, args.metric, args.heatmap)
    if args.target is not None:
        found.metric.check_target(args.target, "--target")
    print_report(found, args.plot, args.target)
    tables = [result_table(found.settings, args.target), cost_table(found.settings)]
    for name in FORMATS:
        if (path := getattr(args, name)) is not None:
            write_text(path, export.FORMATS[name](tables))
    if args.tensorboard is not None:
        from fedsim.report.tensorboard import write_tensorboard

        write_tensorboard(found.runs, args.tensorboard, found.metric)
    if args.html is not None:
        from fedsim.report.page import write_page

        with waiting("writing the page"):
            write_page(found, args.html, args.target)
        print(f"page: {args.html}")
    return 0


def print_report(found: "RunCollection", figures: Path | None, target: float | None = None) -> None:
    """Prints the tables, and writes the figures to the folder `figures` unless it is None."""
    from fedsim.report.cluster_figure import cluster_table
    from fedsim.report.relations import group_table
    from fedsim.report.result_tables import cost_table, published_sources, result_table
    from fedsim.report.tables import model_table, outdated, pairs_table, results_table, search_table, show, time_table

    settings, metric = found.settings, found.metric
    for search in found.searches:
        show(search_table(search))
    unit = " in percent" if metric.percent else ""
    title = f"{metric.name}{unit}: personal models on the clients' own test data"
    table = results_table(title, result_table(settings, target))
    best = "best mean over clients (BMTA)" if metric.percent else "best mean over clients"
    source = published_sources(settings)
    table.caption = f"best: {best}. worst 10 %: of the clients, at the end. p: Wilcoxon over clients, Holm." + (
        f"\npublished: {source}" if source else ""
    )
    show(table)
    for line in outdated(found.runs, metric=metric.name):
        print(line)
    for further in (model_table(settings), pairs_table(settings)):
        if further is not None:
            show(further)
    for relation in (group_table(found.runs), cluster_table(found.runs)):
        if relation is not None:
            show(relation)
    if found.heatmap:
        from fedsim.report.heat_map import heat_map, heat_map_tables

        for table in heat_map_tables(heat_map(settings, found.heatmap)):
            show(table)
    show(time_table(settings))
    show(results_table("costs of a run: seconds of this machine, megabytes", cost_table(settings)))
    if figures is not None:
        with waiting("drawing figures"):
            _write_figures(found, figures)
        print(f"figures: {figures}/*.png ({len(list(figures.glob('*.png')))} files)")


def _write_figures(found: "RunCollection", folder: Path) -> None:
    from fedsim.attacks import SUCCESS
    from fedsim.report.cluster_figure import cluster_figure
    from fedsim.report.distribution import distribution_figure
    from fedsim.report.figures import judged_figure, metric_figure, timeline_figure
    from fedsim.report.matrix_figure import matrix_figure
    from fedsim.report.runs import display_names

    folder.mkdir(parents=True, exist_ok=True)
    if found.searches:
        from fedsim.report.search_figure import search_figure

        search_figure(found.searches[:DRAWN], folder / "search.png")
    name = found.metric.name
    measured = [each for each in found.settings if each.runs]
    few = len(measured) <= CURVES
    if few:
        metric_figure(found.runs, folder / f"{name}.png", name)
        metric_figure(found.runs, folder / f"{name}-over-time.png", name, over="times")
    if few and any(SUCCESS in run.metrics for run in found.runs) and name != SUCCESS:
        metric_figure([run for run in found.runs if SUCCESS in run.metrics], folder / f"{SUCCESS}.png", SUCCESS)
    if found.heatmap:
        from fedsim.report.heat_map import heat_map, heat_map_figure

        heat_map_figure(heat_map(found.settings, found.heatmap), folder / "heat-map.png")
    if few and len(measured) > 1:
        distribution_figure(measured, folder / f"{name}-distribution.png")
    firsts = [each.runs[0] for each in measured][:DRAWN]
    for label, each in zip(display_names(firsts), firsts, strict=True):
        timeline_figure(each, folder / f"timeline-{label}.png")
        matrix_figure(each, folder / f"matrices-{label}.png")
        cluster_figure(each, folder / f"clusters-{label}.png")
        judged_figure(each, folder / f"public-tests-{label}.png")
