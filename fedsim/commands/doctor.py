"""`fedsim doctor`: what is wrong with this machine, or with its part in a federation, and the remedy."""

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("doctor", help="what is wrong with this machine, and the remedy")
    parser.add_argument("--home", type=Path, metavar="DIR", help="check what DIR/node.json or DIR/server.json asks for")
    parser.add_argument("--running", action="store_true", help="with --home: it runs, so its ports are taken")
    parser.add_argument(
        "--now", type=float, metavar="SECONDS", help="a reference time (Unix) to check the clock against"
    )
    parser.add_argument(
        "--reach",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="also connect to this server; with --home to the one it belongs to",
    )
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the CA certificate a server must prove itself by")
    parser.add_argument("--port", type=int, action="append", metavar="N", help="a port to check (default: Flower's)")
    parser.add_argument("--data-root", default="", metavar="DIR", help="where datasets lie (default: $FEDSIM_DATA)")
    parser.add_argument("--deep", action="store_true", help="also start Ray")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from deploy import doctor

    here = time.time() - _age()
    if args.home is not None:
        if args.ca or args.port or args.data_root or args.deep or args.reach:
            raise ConfigError(
                "with --home the file there says what to check: only --now, --running and --reach go with it"
            )
        reach = args.reach is not None
        findings = doctor.examine(args.home, reference=args.now, here=here, running=args.running, reach=reach)
    else:
        if args.running or args.reach == "":
            raise ConfigError("--running, and --reach without HOST:PORT, need --home")
        findings = doctor.survey(
            reference=args.now,
            here=here,
            data_root=args.data_root,
            ports=args.port or doctor.PORTS,
            reach=args.reach or "",
            ca=args.ca,
            deep=args.deep,
        )
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print("\n".join(map(str, findings)))
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def _age() -> float:
    """Seconds since this process began: the reference time was taken before it, and imports take longer than clocks err."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):  # not Linux
        return 0.0
