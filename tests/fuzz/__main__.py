"""`python -m tests.fuzz [INPUTS] [--seed S] [--only READER]`: damaged inputs through every reader. Exit code 1 if an error
escaped that is not for the user."""

import argparse
import logging
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import attack
from tests.fuzz.readers import READERS, slug

MEMORY = Path("/dev/shm")  # a file system in memory, where there is one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("inputs", type=int, nargs="?", default=100_000, help="of all readers together (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=READERS, help="one reader")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = [args.only] if args.only else list(READERS)
    total = escaped = 0
    for number, name in enumerate(names):
        share = (args.inputs * (number + 1)) // len(names) - (args.inputs * number) // len(names)
        began = time.monotonic()
        with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix=f"fuzz-{slug(name)}-") as folder:
            outcome = attack(name, share, Path(folder), args.seed)
        seconds = time.monotonic() - began
        counts = f"{share:7,} inputs  {outcome.accepted:6,} accepted  {outcome.refused:6,} refused"
        print(f"{name:40}{counts}  {len(outcome.escaped)} escaped  {seconds:5.0f} s", flush=True)
        for told, content in outcome.escaped.items():
            print(f"    {told}\n        {content[:200]!r}", flush=True)
        total, escaped = total + share, escaped + len(outcome.escaped)
    print(f"{total:,} inputs of seed {args.seed}: {escaped} errors escaped")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
