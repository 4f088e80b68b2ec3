"""`fedsim compare A B`: two runs side by side, client by client."""

import argparse
import json
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError
from fedsim.results.waiting import waiting


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "compare", help="two runs side by side: settings, metrics, every client, costs, and a signed-rank test"
    )
    parser.add_argument("a", type=Path, metavar="A", help="a run folder")
    parser.add_argument("b", type=Path, metavar="B", help="another one")
    parser.add_argument("--metric", metavar="NAME", help="compare clients by this metric (default: the main one)")
    parser.add_argument(
        "--kind", choices=("personal", "global", "local"), default="personal", help="of which models (%(default)s)"
    )
    parser.add_argument("--plot", type=Path, metavar="P.png", help="draw both curves and every client's difference")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.report.comparison import compare
    from fedsim.report.runs import RunResult

    if args.plot and not args.plot.parent.is_dir():
        raise ConfigError(f"cannot draw {args.plot}: there is no folder {args.plot.parent}")
    with waiting("reading the runs"):
        found = compare(RunResult.load(args.a), RunResult.load(args.b), args.kind, args.metric)
    if args.json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        from fedsim.report.tables import show

        for table in found.tables():
            show(table)
        print(found.verdict)
    if args.plot:
        found.figure(args.plot)
    return 0
