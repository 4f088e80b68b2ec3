"""`fedsim watch`: a local page that follows running and finished runs, sweeps and federations."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.watch.nodes import Nodes

LOOPBACK, PORT = "127.0.0.1", 8200


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("watch", help="a local page that follows runs, sweeps and federations")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="RUN|FOLDER",
        help="a run, a sweep, a folder above them, or that of federation.toml (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=PORT, help="0: any that is free (default: %(default)s)")
    parser.add_argument("--host", default=LOOPBACK, help="the address to listen on (default: %(default)s)")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.watch.server import LOOPBACK as OWN
    from fedsim.watch.server import Server
    from fedsim.watch.watcher import Watcher

    if not args.folder.is_dir():
        raise ConfigError(f"{args.folder} is no folder: name a run, a sweep, or a folder of runs")
    nodes = _nodes(args.folder)
    with Server(Watcher(args.folder, nodes.status if nodes else lambda: None), args.host, args.port) as server:
        if args.host not in OWN:
            print(
                f"warning: whoever reaches {args.host} can see these runs: there is no password and no encryption. "
                f"An ssh tunnel to {LOOPBACK} is safer",
                file=sys.stderr,
            )
        print(f"watching {args.folder} at {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _nodes(folder: Path) -> "Nodes | None":
    """The nodes of the federation in this folder, if it holds one."""
    from fedsim.deploy.inventory import FILE, read

    if not (folder / FILE).exists():
        return None
    from fedsim.deploy.federation import Federation
    from fedsim.deploy.status import gather
    from fedsim.watch.nodes import Nodes

    inventory = read(folder / FILE)
    federation = Federation(inventory, lambda line: None)
    return Nodes(inventory.name, lambda: gather(federation))
