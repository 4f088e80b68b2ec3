"""The command line: one module per command. An error that the user can correct is printed as one line, no traceback."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from fedsim.errors import FedsimError, unknown_text
from fedsim.logs import print_messages

COMMANDS = (
    "run",
    "sweep",
    "report",
    "compare",
    "resume",
    "watch",
    "book",
    "list",
    "partition",
    "mix",
    "data",
    "deploy",
    "doctor",
    "chaos",
    "completion",
)
INTERRUPTED, BROKEN_PIPE = 130, 141  # as shells count them


class Parser(argparse.ArgumentParser):
    """Names the command, option or choice that was probably meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = action.dest if isinstance(action, argparse._SubParsersAction) else "/".join(action.option_strings)
            self.error(unknown_text(what or str(action.metavar or action.dest), str(value), map(str, action.choices)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            name = rest[0].partition("=")[0]
            if not name.startswith("-"):
                self.error(f"unexpected argument {name!r}")
            options = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
            self.error(unknown_text("option", name, options))
        return found, rest


def parser_for(words: Sequence[str]) -> Parser:
    """A parser that knows the command of these words, or all commands. Only what is needed is imported."""
    parser = Parser(prog="fedsim", description="Personalized and asynchronous federated learning.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        import_module(f"fedsim.commands.{name}").add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    args = parser_for(words).parse_args(words)
    print_messages()
    return exit_code(lambda: int(args.handler(args)))


def exit_code(call: Callable[[], int]) -> int:
    """The exit code that `call` returns, or that of an error, which is printed."""
    try:
        return call()
    except FedsimError as error:
        print(f"fedsim: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # who reads the output has enough: head, less
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        print(f"fedsim: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fedsim: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
