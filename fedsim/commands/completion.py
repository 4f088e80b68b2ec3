"""`fedsim completion`: commands, options, configuration keys and names for the TAB key of a shell."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedsim.cli import COMMANDS, parser_for

CANDIDATES = "candidates"
BASH = """\
# for ~/.bashrc:  source <(fedsim completion bash)
_fedsim() {
    local line=${COMP_LINE:0:COMP_POINT} found
    local word=${line##*[[:space:]]}
    local before=${word%"${word##*[=:]}"}  # bash takes what follows = and : for a word of its own
    COMPREPLY=()
    while IFS= read -r found; do
        [[ $found == *[=.] ]] || found+=" "
        COMPREPLY+=("${found#"$before"}")
    done < <(fedsim completion candidates "$line" 2>/dev/null)
}
complete -o nospace -o default -F _fedsim fedsim
"""
ZSH = """\
# for ~/.zshrc, after compinit:  source <(fedsim completion zsh)
_fedsim() {
    local -a found open
    found=("${(@f)$(fedsim completion candidates "${words[1,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    open=(${(M)found:#*[=.]})
    (( $#found )) || { _files; return }
    compadd -S "" -- $open
    compadd -- ${found:#*[=.]}
}
compdef _fedsim fedsim
"""
FISH = """\
# for ~/.config/fish/config.fish:  fedsim completion fish | source
complete -c fedsim -a "(fedsim completion candidates (commandline -cp | string collect) 2>/dev/null)"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
BOOLEANS = ("true", "false")


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "completion", help="print the script that completes commands, keys and names in a shell"
    )
    parser.add_argument("shell", choices=(*SCRIPTS, CANDIDATES), metavar="|".join(SCRIPTS), help="which shell")
    parser.add_argument("line", nargs="?", default="", help=argparse.SUPPRESS)  # the command line up to the cursor
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    print(
        SCRIPTS[args.shell] if args.shell in SCRIPTS else "\n".join(candidates(args.line)), end="\n" * (args.line != "")
    )
    return 0


def candidates(line: str) -> list[str]:
    """What the last word of a command line may become; nothing where a file is expected."""
    words = line.split()
    words = words[1:] + [""] * (line[-1:].isspace() or len(words) < 2)
    *before, typed = words
    parser: argparse.ArgumentParser = parser_for(before)
    waits, places = None, 0  # the option whose value comes next, and the positional arguments so far
    for word in before:
        commands = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        if waits is not None:
            waits = None
        elif word.startswith("-"):
            option = parser._option_string_actions.get(word)
            waits = option if option is not None and option.nargs != 0 else None
        elif commands is not None and word in commands.choices:
            parser, places = commands.choices[word], 0
        else:
            places += 1
    if waits is not None:
        found = _pairs(before, typed) if waits.dest == "set" else map(str, waits.choices or ())
    elif typed.startswith("-"):
        found = parser._option_string_actions
    else:
        found = _arguments(parser, places, before)
    return sorted(word for word in found if word.startswith(typed))


def _arguments(parser: argparse.ArgumentParser, places: int, before: list[str]) -> Iterable[str]:
    """The choices of the next positional argument."""
    from fedsim import registry

    positional = [action for action in parser._actions if not action.option_strings][places : places + 1]
    if not before:
        return COMMANDS
    if positional and positional[0].choices is not None:
        return map(str, positional[0].choices)
    if before[0] == "list" and not places:
        from fedsim.commands.list import all_names

        return all_names()
    if before[0] == "data" and not places:
        return registry.names("dataset")
    if before[0] == "sweep" and not places:
        from fedsim.sweeps.sweep_file import preset_texts

        return [*preset_texts(), *map(str, Path().glob("*.toml"))]
    return ()


def _pairs(before: list[str], typed: str) -> Iterable[str]:
    """KEY=VALUE: keys first, then the values of a key, if they have names."""
    from fedsim.config import FIXED, RunConfig
    from fedsim.parameters import Parameter, parameters

    key, equals, _ = typed.partition("=")
    chosen = dict(word.split("=", 1) for word in before if "=" in word)
    if "." in key:
        section = key.rpartition(".")[0]
        known = {f"{section}.{p.key}": p for p in parameters(_owner(section, chosen))}
    else:
        known = {p.key: p for p in parameters(RunConfig)}
    if equals:
        return [f"{key}={value}" for value in _values(key, known.get(key, Parameter(key, "", "", None, "")))]
    sections = () if "." in key else (f"{name}." for name in (*FIXED, *_names("algorithm"), *_names("filter")))
    return [*(f"{name}=" for name in known), *(name for name in sections if key and name.startswith(key))]


def _owner(section: str, chosen: dict[str, str]) -> type | None:
    """The dataclass of a section's parameters: of the part that the line has chosen, or of an algorithm."""
    from fedsim import config, registry

    if section in registry.KINDS and section in config.SECTIONS:
        name = chosen.get(section, str(getattr(config.RunConfig, section.replace("-", "_"))))
        return registry.find(section, name).params if name in registry.providers(section) else None
    fixed = {"finetune": config.FineTuning, "public": config.PublicParams, "data": config.DataParams}
    if section in fixed:
        return fixed[section]
    kind = "filter" if section in registry.providers("filter") else "algorithm"
    return registry.find(kind, section).params if section in registry.providers(kind) else None


def _values(key: str, parameter: Any) -> Iterable[str]:
    kind = {"filters": "filter"}.get(key, key)
    from fedsim import registry

    if kind in registry.KINDS:
        return registry.names(kind)
    return parameter.valid.split(" | ") if " | " in parameter.valid else ()


def _names(kind: str) -> list[str]:
    from fedsim import registry

    return registry.names(kind)
