"""`fedsim run`: one federated run on this machine, or on a Ray cluster."""

import argparse
from pathlib import Path
from typing import Any

from fedsim.engine import ENGINES


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("run", help="run a federation on Ray or in this process")
    add_config(parser)
    parser.add_argument("--engine", choices=ENGINES, default="ray", help="where clients run (default: %(default)s)")
    parser.add_argument("--out", help="the run folder (default: a new one below runs/)")
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="join this Ray cluster instead of starting one")
    parser.add_argument("--dry-run", action="store_true", help="tell what the run would be and cost; write nothing")
    parser.set_defaults(handler=run)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments FILE.toml and --set, which define the configuration of a run."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="configuration")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="set or override a configuration key")


def run(args: argparse.Namespace) -> int:
    from fedsim import config as configs
    from fedsim.engine.launch import launch

    out = [f"out={args.out}"] if args.out else []
    config = configs.read(args.file, [*args.set, *out])
    if args.dry_run:
        from fedsim.commands.dry_run import show_preview

        show_preview(config, args.engine)
        return 0
    print_result(launch(config, args.engine, args.ray_address))
    return 0


def print_result(folder: Path) -> None:
    """Prints the table of results and the folder of a run."""
    from fedsim.report.runs import RunResult
    from fedsim.report.tables import metric_table, outdated, show, unseen_clients
    from fedsim.results.record import read_summary

    runs = [RunResult.load(folder)]
    show(metric_table(runs))
    for line in [*unseen_clients(runs), *outdated(runs), *failure_lines(read_summary(folder)["failures"])]:
        print(line)
    print(f"run folder: {folder}")


def failure_lines(failures: list[dict[str, Any]]) -> list[str]:
    """A line for each reason why jobs failed, with the first client and round and how many there were."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for failure in failures:
        by_reason.setdefault(failure["reason"], []).append(failure)
    return [
        f"failed: client {first['client']} in round {first['round']}: {reason}"
        + (f" (and {len(rest)} more like it)" if rest else "")
        for reason, (first, *rest) in by_reason.items()
    ]
