"""`fedsim sweep`: several runs from one file, then side by side. Runs that are finished already are not repeated."""

import argparse
from pathlib import Path
from typing import Any

from fedsim.commands.report import tell
from fedsim.config import RunConfig
from fedsim.engine.launch import ENGINES, launch
from fedsim.errors import ConfigError
from fedsim.record import MANIFEST, read_manifest
from fedsim.report.runs import Run
from fedsim.sweep import read


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("sweep", help="several runs from one file, side by side")
    parser.add_argument("file", metavar="FILE.toml", help="a sweep file, or the name of a preset")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="override a key in every run")
    parser.add_argument("--engine", choices=ENGINES, default="ray", help="where clients run (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="the folder of all runs (default: runs/ and the sweep's name)")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    sweep = read(args.file, args.set)
    home = args.out or Path("runs") / sweep.name
    print(f"{sweep.name}: {sweep.about}")
    for name, config in sweep.cells.items():
        _run_cell(config.replace(out=str(home / name)), args.engine)
    tell([Run.load(home / name) for name in sweep.cells], home)
    print(f"run folders: {'  '.join(str(home / name) for name in sweep.cells)}")
    return 0


def _run_cell(config: RunConfig, engine: str) -> None:
    """Skips a finished cell, goes on with one that was stopped."""
    folder = Path(config.out)
    if not (folder / MANIFEST).exists():
        return launch(config, engine)
    manifest = read_manifest(folder)
    asked = {k: v for k, v in config.flat().items() if k not in ("out", "resume")}
    if manifest["config"] != asked:
        raise ConfigError(f"{folder} holds a run of another configuration: choose another --out, or remove it")
    if manifest["status"] != "finished":
        launch(config.replace(resume=True), engine)
    return None
