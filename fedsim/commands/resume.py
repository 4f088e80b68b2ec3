"""`fedsim resume`: continues a run from its last checkpoint; the result is that of an uninterrupted run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.commands.run import print_result
from fedsim.engine import ENGINES
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.config import RunConfig


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("resume", help="continue a run that was interrupted")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("--engine", choices=ENGINES, help="where clients run (default: as before)")
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="join this Ray cluster instead of starting one")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.engine.launch import launch

    config, previous = read_resumable(args.run)
    engine = args.engine or previous
    if engine not in ENGINES:
        raise ConfigError(
            f"{args.run} ran on {engine}: resume it there with `fedsim deploy run --resume {args.run}`, or with "
            f"`flwr run`, its keys and resume=true out={args.run}; or here with --engine {' or '.join(ENGINES)}"
        )
    launch(config, engine, args.ray_address)
    print_result(args.run)
    return 0


def read_resumable(folder: Path) -> "tuple[RunConfig, str]":
    """The configuration that resumes the run in this folder, and the engine it ran on. Raises ConfigError if the run is
    finished or the folder holds none."""
    from fedsim import config as configs
    from fedsim.results.record import old_folder, read_manifest

    manifest = read_manifest(folder)
    config = configs.parse({**manifest["config"], "out": str(folder), "resume": True})
    old_folder(config)
    return config, manifest["engine"]
