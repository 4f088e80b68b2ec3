"""`fedsim partition`: what each client would hold, and how heterogeneous it is."""

import argparse
import json
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.commands.run import add_config
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.results.waiting import waiting

MEASURES = ("eq2", "eq3", "emd", "1-cka")  # the keys of report.heterogeneity.DISTANCES


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("partition", help="what each client would hold, and how heterogeneous it is")
    add_config(parser)
    parser.add_argument("--plot", type=Path, metavar="P.png", help="draw labels, sizes and the matrix of distances")
    parser.add_argument("--compare", metavar="A,B,...", help="the mean client distances of several partitions")
    parser.add_argument(
        "--measure", choices=MEASURES, default="eq2", help="the distance to draw (default: %(default)s)"
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="compare models instead of data: every client trains one epoch (local-epochs) from the same start, and CKA "
        "tells how alike their layers are",
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    if args.plot and not args.plot.parent.is_dir():
        raise ConfigError(f"cannot draw {args.plot}: there is no folder {args.plot.parent}")
    chosen = configs.read(args.file, args.set)
    variants = _variants(chosen, args.compare) if args.compare else [chosen]
    return _layers(variants, args) if args.layers else _data(variants, args)


def _data(variants: list[RunConfig], args: argparse.Namespace) -> int:
    from fedsim.partitions.summary import summarize
    from fedsim.report import heterogeneity
    from fedsim.report.tables import show

    with waiting("measuring the clients' data") as progress:
        results = []
        for number, config in enumerate(variants):
            progress(number, len(variants))
            results.append(summarize(config))
    if args.json:
        listed = [found.as_json() for found in results]
        print(json.dumps(listed if args.compare else listed[0], indent=1))
    else:
        if not args.compare:
            show(heterogeneity.client_table(results[0]))
        show(heterogeneity.distance_table(results))
    if args.plot:
        if args.compare:
            figure = heterogeneity.comparison_figure(results, args.measure)
        else:
            figure = heterogeneity.heterogeneity_figure(results[0], args.measure)
        figure.savefig(args.plot, dpi=130)
    return 0


def _layers(variants: list[RunConfig], args: argparse.Namespace) -> int:
    from fedsim.clients.layers import layer_similarity
    from fedsim.report import heterogeneity
    from fedsim.report.tables import show

    with waiting("training the clients' models"):
        found = {config.partition: layer_similarity(config) for config in variants}
    if args.json:
        print(json.dumps({n: {k: m.tolist() for k, m in layers.items()} for n, layers in found.items()}))
    else:
        show(heterogeneity.layer_table(found))
    if args.plot:
        one = variants[0]
        name = f"{one.dataset}, {one.model}, {one.clients} clients, seed {one.seed}"
        heterogeneity.layer_figure(found, name).savefig(args.plot, dpi=130)
    return 0


def _variants(config: RunConfig, names: str) -> list[RunConfig]:
    """The same run under several partitions, each with its own defaults."""
    if "partition" in config.sections:
        raise ConfigError("--compare takes every partition with its defaults; leave out the partition.* keys")
    return [config.replace(partition=name.strip()) for name in names.split(",")]
