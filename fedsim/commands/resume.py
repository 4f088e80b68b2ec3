"""`fedsim resume`: goes on from a run's last checkpoint, as if it had never stopped."""

import argparse
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.commands.run import conclude
from fedsim.config import RunConfig
from fedsim.engine.launch import ENGINES, launch
from fedsim.errors import ConfigError
from fedsim.record import old_folder, read_manifest


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("resume", help="go on with a run that was stopped")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("--engine", choices=ENGINES, help="where clients run (default: as before)")
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="join this Ray cluster instead of starting one")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    config, before = unfinished(args.run)
    engine = args.engine or before
    if engine not in ENGINES:
        raise ConfigError(
            f"{args.run} ran on {engine}: go on there with `fedsim deploy run --resume {args.run}` or with `flwr run` and "
            f"resume=true out={args.run} beside its other keys, or here with --engine {' or '.join(ENGINES)}"
        )
    launch(config, engine, args.ray_address)
    conclude(args.run)
    return 0


def unfinished(folder: Path) -> tuple[RunConfig, str]:
    """How to go on with the run in this folder, and the engine it ran on; what cannot be resumed is refused."""
    manifest = read_manifest(folder)
    config = configs.parse({**manifest["config"], "out": str(folder), "resume": True})
    old_folder(config)
    return config, manifest["engine"]
