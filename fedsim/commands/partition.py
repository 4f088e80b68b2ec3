"""`fedsim partition`: what each client would hold, and how heterogeneous it is."""

import argparse
import json
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.commands.run import add_config
from fedsim.config import RunConfig
from fedsim.errors import ConfigError


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("partition", help="what each client would hold, and how heterogeneous it is")
    add_config(parser)
    parser.add_argument("--plot", type=Path, metavar="P.png", help="draw labels, sizes and the proximity matrix")
    parser.add_argument("--compare", metavar="A,B,...", help="the mean client distances of several partitions")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.partitions.summary import summarize
    from fedsim.report import heterogeneity
    from fedsim.report.tables import show

    if args.plot and not args.plot.parent.is_dir():
        raise ConfigError(f"cannot draw {args.plot}: there is no folder {args.plot.parent}")
    chosen = configs.read(args.file, args.set)
    results = [summarize(config) for config in (_variants(chosen, args.compare) if args.compare else [chosen])]
    if args.json:
        listed = [found.as_json() for found in results]
        print(json.dumps(listed if args.compare else listed[0], indent=1))
    else:
        if not args.compare:
            show(heterogeneity.client_table(results[0]))
        show(heterogeneity.distance_table(results))
    if args.plot:
        draw = (
            heterogeneity.comparison_figure(results) if args.compare else heterogeneity.heterogeneity_figure(results[0])
        )
        draw.savefig(args.plot, dpi=130)
    return 0


def _variants(config: RunConfig, names: str) -> list[RunConfig]:
    """The same run under several partitions, each with its own defaults."""
    if "partition" in config.sections:
        raise ConfigError("--compare takes every partition with its defaults; leave out the partition.* keys")
    return [config.replace(partition=name.strip()) for name in names.split(",")]
