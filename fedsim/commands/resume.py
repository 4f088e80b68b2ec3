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
    add_any_version(parser)
    parser.set_defaults(handler=run)


def add_any_version(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for resuming a run of another version."""
    parser.add_argument(
        "--any-version", action="store_true", help="resume also a run that another version of fedsim began"
    )


def run(args: argparse.Namespace) -> int:
    from fedsim.engine.launch import launch

    config, previous = read_resumable(args.run, args.any_version)
    engine = args.engine or previous
    if engine not in ENGINES:
        raise ConfigError(
            f"{args.run} ran on {engine}: resume it there with `fedsim deploy run --resume {args.run}`, or with "
            f"`flwr run`, its keys and resume=true out={args.run}; or here with --engine {' or '.join(ENGINES)}"
        )
    launch(config, engine, args.ray_address)
    print_result(args.run)
    return 0


def read_resumable(folder: Path, any_version: bool = False) -> "tuple[RunConfig, str]":
    """The configuration that resumes the run in this folder, and the engine it ran on. Raises ConfigError if the run is
    finished, if another version began it and not `any_version`, or if the folder holds none."""
    from fedsim import config as configs
    from fedsim.results.record import check_version, old_folder, read_manifest

    manifest = read_manifest(folder)
    check_version(folder, manifest, any_version)  # before its keys are read, which may be other ones
    config = configs.parse({**manifest["config"], "out": str(folder), "resume": True, "any-version": any_version})
    old_folder(config)
    return config, manifest["engine"]
