"""The reference of the command line, of the configuration and of the Python API."""

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import fedsim
from docsite.tables import parameter_table, table
from fedsim import cli, registry

NO_ARGUMENTS = (argparse._HelpAction, argparse._SubParsersAction)


def command_line() -> str:
    """Every command with its usage, help and arguments, from the parsers themselves."""
    parser = argparse.ArgumentParser(prog="fedsim")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name in cli.COMMANDS:
        import_module(f"fedsim.commands.{name}").add(commands)
    sections = "\n\n".join(_commands(commands, level=2))
    return (
        f"# Command line\n\nMade from the parsers of the commands: what `fedsim COMMAND --help` prints.\n\n{sections}\n"
    )


def _commands(found: "argparse._SubParsersAction[Any]", level: int) -> Iterator[str]:
    about = {action.dest: action.help or "" for action in found._choices_actions}
    for name, parser in found.choices.items():
        yield f"{'#' * level} `{parser.prog}`\n\n{_sentence(about.get(name, ''))}"
        if parser.description:
            yield parser.description
        nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not nested:
            yield f"```text\n{re.sub(r'^usage: ', '', parser.format_usage()).strip()}\n```"
        if rows := [_argument(action) for action in parser._actions if not isinstance(action, NO_ARGUMENTS)]:
            yield table(["argument", "meaning"], rows)
        for inner in nested:
            yield from _commands(inner, level + 1)


def _argument(action: argparse.Action) -> list[str]:
    """How an argument is written, and its help."""
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper().replace("_", "-"))
    if action.choices is not None and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    written = [", ".join(action.option_strings), " ".join(value) if isinstance(value, tuple) else value]
    help_text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    if action.nargs != 0 and action.default not in (None, []) and "default" not in help_text:
        help_text += f" (default: {action.default})"
    return [f"`{' '.join(filter(None, written))}`", help_text]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def parameters() -> str:
    """Everything that a configuration can name besides algorithms, with its parameters."""
    out = [
        "# Parameters",
        "What the keys `partition`, `stragglers`, `pace`, `aggregator`, ... can name, and the parameters of each; those of "
        "algorithms are on [their pages](../algorithms/index.md), the keys of every run in "
        "[Configuration](../configuration.md#keys). `fedsim list NAME` prints the same for one name.",
    ]
    for kind, entry in registry.KINDS.items():
        if kind == "algorithm":
            continue
        out.append(f"## {entry.plural.replace('-', ' ').capitalize()}")
        for name in registry.names(kind):
            prefix = f"{name if kind == 'filter' else kind}."
            found = parameter_table(getattr(registry.find(kind, name), "params", None), prefix)
            out += [f"### `{name}`", _sentence(registry.describe(kind, name).rstrip(".")), *([found] if found else [])]
    return "\n\n".join(out) + "\n"


TITLES = {
    "fedsim.api": "Runs and their results",
    "fedsim.algorithm": "Algorithms",
    "fedsim.clients.local_sgd": "Local SGD",
    "fedsim.clients.training": "Training",
    "fedsim.payload": "Messages and state",
    "fedsim.weights": "Weights",
    "fedsim.layout": "Layout of a model",
    "fedsim.server.fleet": "Clients",
    "fedsim.config": "Configuration and types of parameters",
    "fedsim.aggregators": "Aggregators",
    "fedsim.server_optimizers": "Server optimizers",
    "fedsim.attacks": "Attacks",
    "fedsim.filters": "Filters",
    "fedsim.errors": "Errors",
}


def python_api() -> str:
    """Directives for mkdocstrings: every public name of `fedsim`, under the topic of the module where it lives."""
    homes: dict[str, list[str]] = {}
    for name, home in fedsim._HOME_OF.items():
        homes.setdefault(home, []).append(name)
    order = sorted(homes, key=lambda home: [*TITLES, home].index(home))
    out = ["# Python API", "Everything that `import fedsim` offers, made from the docstrings."]
    for home in order:
        out.append(f"## {TITLES.get(home, home)}")
        out += [f"::: fedsim.{name}" for name in sorted(homes[home], key=lambda name: (name[0].isupper(), name))]
    return "\n\n".join(out) + "\n"
