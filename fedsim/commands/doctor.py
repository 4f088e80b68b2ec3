"""`fedsim doctor`: checks this machine, or its part in a federation, and names remedies."""

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("doctor", help="check this machine and name remedies")
    parser.add_argument("--home", type=Path, metavar="DIR", help="check what DIR/node.json or DIR/server.json asks for")
    parser.add_argument("--running", action="store_true", help="with --home: it is running, so do not check its ports")
    parser.add_argument(
        "--now", type=float, metavar="SECONDS", help="a reference time (Unix) to check the clock against"
    )
    parser.add_argument(
        "--reach",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="also connect to this server; with --home to the server of the federation",
    )
    parser.add_argument("--ca", type=Path, metavar="FILE", help="CA certificate that must have signed the server's")
    parser.add_argument(
        "--port", type=int, action="append", metavar="N", help="port to check (default: those of Flower)"
    )
    parser.add_argument("--data-root", default="", metavar="DIR", help="folder of datasets (default: $FEDSIM_DATA)")
    parser.add_argument("--deep", action="store_true", help="also start Ray")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    from fedsim.deploy import doctor

    here = time.time() - _age()
    if args.home is not None:
        if args.ca or args.port or args.data_root or args.deep or args.reach:
            raise ConfigError(
                "with --home the file there says what to check: only --now, --running and --reach can be added"
            )
        reach = args.reach is not None
        findings = doctor.check_home(args.home, reference=args.now, here=here, running=args.running, reach=reach)
    else:
        if args.running or args.reach == "":
            raise ConfigError("--running, and --reach without HOST:PORT, need --home")
        findings = doctor.check_machine(
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
    """Seconds since this process started: `--now` was taken before that, and the imports since then take a while."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):  # not Linux
        return 0.0
