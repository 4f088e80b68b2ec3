"""The command line: one module per command. An error that the user can correct is printed as one line, no traceback."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fedsim.errors import FedsimError
from fedsim.logs import print_messages

COMMANDS = ("run", "sweep", "report", "resume", "book", "list", "partition", "mix", "data", "deploy", "doctor", "chaos")
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    parser = argparse.ArgumentParser(prog="fedsim", description="Personalized and asynchronous federated learning.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = sys.argv[1:] if arguments is None else arguments
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:  # only what is needed is imported
        import_module(f"fedsim.commands.{name}").add(commands)
    args = parser.parse_args(words)
    print_messages()
    return exit_code(lambda: int(args.handler(args)))


def exit_code(call: Callable[[], int]) -> int:
    """The exit code that `call` returns, or that of an error, which is printed."""
    try:
        return call()
    except FedsimError as error:
        print(f"fedsim: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"fedsim: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedsim: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
