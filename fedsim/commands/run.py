"""`fedsim run`: one federated run on this machine, or on a Ray cluster."""

import argparse
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.engine.launch import ENGINES, launch
from fedsim.record import new_folder


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("run", help="run a federation on Ray or in this process")
    add_config(parser)
    parser.add_argument("--engine", choices=ENGINES, default="ray", help="where clients run (default: %(default)s)")
    parser.add_argument("--out", help="the run folder (default: a new one below runs/)")
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="join this Ray cluster instead of starting one")
    parser.set_defaults(handler=run)


def add_config(parser: argparse.ArgumentParser) -> None:
    """The two ways to say what a run is."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="configuration")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="set or override a configuration key")


def run(args: argparse.Namespace) -> int:
    out = [f"out={args.out}"] if args.out else []
    config = configs.read(args.file, [*args.set, *out])
    folder = new_folder(config)
    launch(config.replace(out=str(folder)), args.engine, args.ray_address)
    conclude(folder)
    return 0


def conclude(folder: Path) -> None:
    """What came out, in a table, and where it lies."""
    from fedsim.report.runs import Run
    from fedsim.report.tables import accuracy_table, show

    show(accuracy_table([Run.load(folder)]))
    print(f"run folder: {folder}")
