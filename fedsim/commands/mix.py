"""`fedsim mix`: the loss of mixtures of two clients' models, trained from a common and from different initial models."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.commands.run import add_config
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.clients.mixing import MixedLosses

LOW, HIGH = -0.2, 1.2  # of theta, as in the paper


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("mix", help="the loss of mixtures of two clients' models, by how they started")
    add_config(parser)
    parser.add_argument("--clients", nargs=2, type=int, default=(0, 1), metavar="ID", help="which two (default: 0 1)")
    parser.add_argument("--points", type=int, default=29, help="mixtures on each curve (default: %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="P.png", help="draw the losses")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from fedsim import config as configs
    from fedsim.clients.mixing import mixed_losses

    if args.plot and not args.plot.parent.is_dir():
        raise ConfigError(f"cannot draw {args.plot}: there is no folder {args.plot.parent}")
    if args.points < 2:
        raise ConfigError(f"--points must be at least 2, not {args.points}")
    config = configs.read(args.file, args.set)
    thetas = np.unique(np.append(np.linspace(LOW, HIGH, args.points).round(6), [0.0, 0.5, 1.0])).tolist()
    found = mixed_losses(config, tuple(args.clients), thetas)
    if args.json:
        print(json.dumps(vars(found), indent=1))
    else:
        _print(found)
    if args.plot:
        from fedsim.report.figures import mixing_figure

        mixing_figure(found.thetas, found.losses, found.metric, args.plot)
    return 0


def _print(found: "MixedLosses") -> None:
    from rich.table import Table

    from fedsim.report.tables import show

    first, second = found.clients
    table = Table(title=f"training {found.metric} over all clients of theta * w + (1 - theta) * w'")
    for column in (
        "start",
        f"client {first} (theta = 1)",
        f"client {second} (theta = 0)",
        "mean (theta = 0.5)",
        "best",
    ):
        table.add_column(column, justify="left" if column == "start" else "right")
    for start, losses in found.losses.items():
        at = dict(zip(found.thetas, losses, strict=True))
        best = min(at, key=lambda theta: at[theta])
        table.add_row(start, *(f"{at[theta]:.4f}" for theta in (1.0, 0.0, 0.5)), f"{at[best]:.4f} ({best:g})")
    show(table)
