"""`fedsim deploy`: a federation on real machines, from the inventory file to a run."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.commands.resume import add_any_version, read_resumable
from fedsim.commands.run import add_config, print_result
from fedsim.errors import ConfigError, FedsimError
from fedsim.results.waiting import waiting

if TYPE_CHECKING:
    from fedsim.config import RunConfig
    from fedsim.deploy.federation import Federation


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("deploy", help="a federation on real machines")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, handler: Callable[[argparse.Namespace], int], help_: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = verbs.add_parser(name, help=help_)
        added.add_argument("--dir", type=Path, default=Path(), help="folder of federation.toml (default: this one)")
        added.set_defaults(handler=handler)
        return added

    begin = verb("init", _init, "write federation.toml, certificates and keys; keeps existing ones")
    begin.add_argument("--name", default="federation", help="name of the federation (default: %(default)s)")
    begin.add_argument("--host", default="127.0.0.1", help="address of the server (default: %(default)s)")
    begin.add_argument("--nodes", type=int, default=2, help="number of nodes of a new one (default: %(default)s)")
    begin.add_argument("--add-node", action="append", default=[], metavar="NAME", help="add a node")
    begin.add_argument("--rotate", action="store_true", help="renew the server's certificate and every node's key")
    begin.add_argument("--passphrase", action="store_true", help="give the CA's key a passphrase")
    _add_passphrase_file(begin)

    up = verb("up", _up, "start the server and the nodes, and wait until they are online")
    up.add_argument("--install", action="store_true", help="first install this version of fedsim on every machine")
    up.add_argument(
        "--wait", type=float, default=120.0, metavar="SECONDS", help="for the nodes to come online (%(default)s)"
    )

    status = verb("status", _status, "nodes and since when they are online, the current run, traffic")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--doctor", action="store_true", help="also run `fedsim doctor` on every machine")

    run = verb("run", _run, "run on the federation; the run folder is copied to this machine")
    add_config(run)
    run.add_argument("--out", type=Path, help="the run folder (default: a new one below runs/)")
    run.add_argument("--resume", type=Path, metavar="RUN", help="continue a run of this federation that was stopped")
    run.add_argument("--follow", metavar="ID", help="show a run that goes on already, and fetch it into --out")
    add_any_version(run)

    logs = verb("logs", _logs, "the logs of the server or a node")
    logs.add_argument("node", nargs="?", default="server", help="a node's name (default: %(default)s)")
    logs.add_argument("--lines", type=int, default=40, help="last lines of each log (default: %(default)s)")
    logs.add_argument("--follow", action="store_true", help="keep printing new lines")

    operator = verb("operator", _operator, "who may use the federation: list, add, change or remove them")
    operator.add_argument("name", nargs="?", help="name of the operator (default: list all)")
    operator.add_argument("--role", choices=("read", "run", "admin"), help="what the operator may do")
    operator.add_argument("--key", metavar="KEY", help="the operator's public key, or the file NAME.pub")
    operator.add_argument("--new-key", type=Path, metavar="DIR", help="make NAME.key and NAME.pub there, for yourself")
    operator.add_argument("--remove", action="store_true", help="take the right to use the federation away")

    certificates = verb("certificates", _certificates, "list the certificates, replace the intermediate CA")
    change = certificates.add_mutually_exclusive_group()
    change.add_argument("--new-intermediate", action="store_true", help="make one; nodes trust it and the present one")
    change.add_argument(
        "--revoke", action="store_true", help="make one, and a server's certificate by it; nodes trust nothing else"
    )
    _add_passphrase_file(certificates)

    join = verb(
        "join", _join, "at a site: make a node's key and a request, then set it up as the operator's approval says"
    )
    join.add_argument("name", nargs="?", help="name of the node, for a request")
    join.add_argument("--home", type=Path, required=True, help="the node's home folder")
    join.add_argument("--out", type=Path, help="file of the request (default: NAME.request)")
    join.add_argument("--approval", type=Path, metavar="FILE", help="what the operator answered")
    join.add_argument("--fingerprint", default="", metavar="HEX", help="of the CA, as the operator told it")
    join.add_argument("--data", help="npz file or image folder of the node's own data")
    join.add_argument("--device", help="auto, cpu, cuda or cuda:N")
    join.add_argument("--port", type=int, help="on loopback; one per node on a machine (default: 9094)")

    approve = verb("approve", _approve, "admit a node that a site has made a request for")
    approve.add_argument("request", type=Path, metavar="REQUEST", help="the file that the site has sent")
    _add_passphrase_file(approve)

    audit = verb("audit", _audit, "the audit logs of the server and the nodes")
    audit.add_argument("action", choices=("verify", "show"), help="check that no log was changed, or print one")
    audit.add_argument("node", nargs="?", default="server", help="whose log to print (default: %(default)s)")
    audit.add_argument("--lines", type=int, default=40, help="last lines to print (default: %(default)s)")
    audit.add_argument("--home", type=Path, help="verify or print the log in this home folder of this machine")

    down = verb("down", _down, "stop every process of the federation")
    down.add_argument("--purge", action="store_true", help="also remove the home folders, with the state of the nodes")

    render = verb("render", _render, "write files for Docker Compose, systemd or Kubernetes")
    render.add_argument("kind", choices=("compose", "systemd", "kubernetes"))
    render.add_argument("--out", type=Path, help="folder for the files (default: rendered/KIND)")
    render.add_argument("--base-image", default="", metavar="IMAGE@sha256:DIGEST", help="that containers are made from")


def _add_passphrase_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="with the passphrase of the CA's key")


def _federation(args: argparse.Namespace) -> "Federation":
    from fedsim.deploy.federation import Federation
    from fedsim.deploy.inventory import FILE, read

    def report(line: str) -> None:
        print(f"{line}\n", end="", flush=True)  # one write, because several threads report

    return Federation(read(args.dir / FILE), report)


def _init(args: argparse.Namespace) -> int:
    from fedsim.deploy import passphrase
    from fedsim.deploy.setup import init

    done, secret = list[str](), passphrase.source(args.passphrase_file)
    encrypt = (lambda: passphrase.new(args.passphrase_file)) if args.passphrase else None
    for line in init(args.dir, args.name, args.host, args.nodes, args.add_node, args.rotate, secret, encrypt):
        print(line, flush=True)
        done.append(line)
    if not done:
        print("everything exists already")
    return 0


def _up(args: argparse.Namespace) -> int:
    federation = _federation(args)
    with waiting(f"starting {federation.inventory.name}"):
        federation.up(args.install, args.wait)
    joined = f", {len(federation.joined)} joined" if federation.joined else ""
    print(f"{federation.inventory.name} is up: {len(federation.nodes)} nodes online{joined}")
    return 0


def _status(args: argparse.Namespace) -> int:
    from fedsim.deploy.status import gather, show

    found = gather(_federation(args), args.doctor)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        show(found, time.time())
    return 0 if found["healthy"] else 1


def _run(args: argparse.Namespace) -> int:
    from fedsim.results.progress import Bar, Relay
    from fedsim.results.record import holds_run

    federation = _federation(args)
    relay = Relay(Bar()) if sys.stdout.isatty() else None
    try:
        if args.follow:
            if args.out is None:
                raise ConfigError("--follow needs --out, the run folder that the run was started with")
            folder, status = args.out, federation.follow(args.follow, args.out, relay)
        else:
            folder, config = _wanted_run(args, len(federation.inventory.nodes))
            status = federation.run(config, folder, relay)
    except KeyboardInterrupt:
        if args.follow:
            told = f"the run goes on: `fedsim deploy run --follow {args.follow} --out {args.out}` shows it again"
        else:
            told = f"the run is stopped on the server, too: `fedsim deploy run --resume {folder}` goes on with it"
        print(told, flush=True)
        raise
    finally:
        if relay:
            relay.end()
    if "completed" not in status:
        why = status.removeprefix("finished:").replace("ServerApp failed with exception: ", " ").rstrip(".")
        again = f", `fedsim deploy run --resume {folder}` goes on with it" if holds_run(folder) else ""
        raise FedsimError(f"the run ended, {why}. `fedsim deploy logs` has the details{again}")
    print_result(folder)
    return 0


def _wanted_run(args: argparse.Namespace, nodes: int) -> "tuple[Path, RunConfig]":
    """The folder and the configuration of a new run, or of one that is resumed; raises ConfigError if it cannot run."""
    from fedsim import config as configs
    from fedsim.results.record import new_folder
    from fedsim.server.run import pace_and_stragglers

    if args.resume:
        folder, (config, _) = args.resume, read_resumable(args.resume, args.any_version)
    else:
        out = [f"out={args.out}"] if args.out else []
        config = configs.read(args.file, [*args.set, *out], {"clients": nodes})
        folder = new_folder(config)
    if config.clients != nodes:
        raise ConfigError(f"clients={config.clients}, but the federation has {nodes} nodes: leave the key out")
    pace_and_stragglers(config)  # raises now what the ServerApp would raise after the start
    return folder, config


def _logs(args: argparse.Namespace) -> int:
    for line in _federation(args).logs(args.node, args.lines, args.follow):
        print(line, flush=True)
    return 0


def _operator(args: argparse.Namespace) -> int:
    from fedsim.deploy import operators

    if args.name is None:
        for each in operators.read(args.dir).values():
            print(f"{each.name:<16} {each.role:<8} {each.key}")
    elif args.new_key is not None:
        path = args.new_key / f"{args.name}.key"
        print(f"{operators.create_key(path)}\n{path} stays with you; send {path.with_suffix('.pub')} to an admin")
    elif args.remove:
        operators.remove(args.dir, args.name)
        print(f"{args.name} is removed; `fedsim deploy up` tells the server")
    elif args.role and args.key:
        operators.add(args.dir, args.name, args.role, args.key)
        print(f"{args.name} has the role {args.role}; `fedsim deploy up` tells the server")
    else:
        raise ConfigError("give --role and --key to add an operator, --new-key to make a key, or --remove")
    return 0


def _certificates(args: argparse.Namespace) -> int:
    from fedsim.deploy import passphrase
    from fedsim.deploy.checks.certificates import federation
    from fedsim.deploy.inventory import FILE, read
    from fedsim.deploy.join import write_approvals
    from fedsim.deploy.setup import new_intermediate

    inventory = read(args.dir / FILE)
    if args.new_intermediate or args.revoke:
        secret = cache(passphrase.source(args.passphrase_file))
        for line in new_intermediate(inventory, args.revoke, secret):
            print(line)
        joined = [node.name for node in inventory.nodes if node.joined]
        for line in write_approvals(inventory, joined, secret):
            print(line)
    found = federation(inventory.secrets)
    for finding in found:
        print(finding)
    return 1 if any(finding.level == "problem" for finding in found) else 0


def _join(args: argparse.Namespace) -> int:
    from fedsim.deploy import join

    if (args.name is None) == (args.approval is None):
        raise ConfigError("give either the name of the node, to make a request, or --approval FILE, to use the answer")
    if args.approval is None:
        lines = join.request(args.home, args.name, args.out or Path(f"{args.name}.request"))
    else:
        own = {"data": args.data and str(Path(args.data).absolute()), "device": args.device}
        given = {key: value for key, value in own.items() if value}
        lines = join.accept(args.home.absolute(), args.approval, args.fingerprint, given, args.port)
    for line in lines:
        print(line)
    return 0


def _approve(args: argparse.Namespace) -> int:
    from fedsim.deploy import join, passphrase
    from fedsim.deploy.inventory import FILE, read

    inventory = read(args.dir / FILE, check=False)  # it may be the first node
    for line in join.approve(inventory, args.request, passphrase.source(args.passphrase_file)):
        print(line)
    return 0


def _audit(args: argparse.Namespace) -> int:
    from fedsim.deploy import audit

    if args.home is not None:
        return audit.main(args.action, args.home / audit.FILE, [str(args.lines)] if args.action == "show" else [])
    federation = _federation(args)
    if args.action == "show":
        print(federation.audit_log(args.node, args.lines), end="")
        return 0
    broken = 0
    for name, found in federation.verify_logs().items():
        if isinstance(found, str):
            broken += 1
            print(f"BROKEN {found}" if found.startswith(f"{name}: ") else f"BROKEN {name}: {found}")
            continue
        cut = f"; cut off by a crash: {', '.join(map(str, found.incomplete))}" if found.incomplete else ""
        print(f"ok     {name}: {found.lines} lines, the last one is {found.head[:12]}{cut}")
    return 1 if broken else 0


def _down(args: argparse.Namespace) -> int:
    _federation(args).down(args.purge)
    return 0


def _render(args: argparse.Namespace) -> int:
    from fedsim.deploy.inventory import FILE, read
    from fedsim.deploy.render import render

    for path in render(read(args.dir / FILE), args.kind, args.out or Path("rendered") / args.kind, args.base_image):
        print(path)
    return 0
