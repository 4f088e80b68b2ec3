"""`fedsim list`: the names that a configuration can use, with their parameters."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedsim import registry
from fedsim.errors import unknown

if TYPE_CHECKING:
    from fedsim.parameters import Parameter
    from fedsim.sweeps.sweep_file import Sweep

KIND_OF = {kind.plural: name for name, kind in registry.KINDS.items()}
PRESETS = "presets"


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "list", help="what a configuration can name: algorithms, datasets, models, attacks, presets and the rest"
    )
    kinds = ", ".join([*KIND_OF, PRESETS])
    parser.add_argument(
        "what",
        nargs="?",
        metavar="KIND|NAME",
        help=f"a kind ({kinds}), or one name, with the meaning of its parameters",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    kinds = [*KIND_OF, PRESETS]
    if args.what is None or args.what in kinds:
        found = {plural: _names(plural) for plural in ([args.what] if args.what else kinds)}
    elif not (found := {plural: [args.what] for plural in kinds if args.what in _names(plural)}):
        unknown("kind or name", args.what, kinds, further=all_names())
    entries = {plural: [_entry(plural, name) for name in names] for plural, names in found.items()}
    if args.json:
        print(json.dumps(entries, indent=1))
    elif args.what is None or args.what in kinds:
        _print_lists(entries)
    else:
        for plural, (entry,) in entries.items():
            _print_one(plural, entry)
    return 0


def all_names() -> list[str]:
    """Everything that `fedsim list` takes."""
    kinds = [*KIND_OF, PRESETS]
    return sorted({*kinds, *(name for plural in kinds for name in _names(plural))})


def _names(plural: str) -> list[str]:
    if plural == PRESETS:
        from fedsim.sweeps.sweep_file import preset_texts

        return sorted(preset_texts())
    return registry.names(KIND_OF[plural])


def _entry(plural: str, name: str) -> dict[str, Any]:
    """Name, description, and of each parameter the default, the type, what is allowed of that type, and the meaning."""
    if plural == PRESETS:
        from fedsim.sweeps.sweep_file import read_sweep

        return _preset(read_sweep(name))
    found = _parameters(plural, name)
    return {
        "name": name,
        "about": registry.describe(KIND_OF[plural], name),
        "params": {p.key: p.default for p in found},
        "constraints": {p.key: p.valid for p in found if p.valid},
        "types": {p.key: p.type for p in found},
        "meanings": {p.key: p.meaning for p in found},
        "provider": registry.providers(KIND_OF[plural])[name],
    }


def _parameters(plural: str, name: str) -> "tuple[Parameter, ...]":
    from fedsim.parameters import parameters

    return parameters(getattr(registry.find(KIND_OF[plural], name), "params", None))


def _preset(found: "Sweep") -> dict[str, Any]:
    facts = {"about": found.about, "scale": found.scale, "takes": found.takes}
    return {"name": found.name, "runs": len(found.cells), **facts, "params": {}, "constraints": {}}


def _print_lists(lists: dict[str, list[dict[str, Any]]]) -> None:
    for plural, entries in lists.items():
        print(f"{plural}:")
        for entry in entries:
            found = () if plural == PRESETS else _parameters(plural, entry["name"])
            params = ", ".join(f"{p.key}={p.shown_default}" + (f" ({p.valid})" if p.valid else "") for p in found)
            print(f"  {entry['name']:<16} {entry['about']}" + (f"  [{params}]" if params else ""))
            for fact in ("scale", "takes"):
                if fact in entry:
                    print(f"  {'':<16} {fact}: {entry[fact]}")


def _print_one(plural: str, entry: dict[str, Any]) -> None:
    name = entry["name"]
    print(f"{name} ({KIND_OF.get(plural, 'preset')}): {entry['about']}")
    for fact in ("runs", "scale", "takes", "provider"):
        if fact in entry:
            print(f"{fact}: {entry[fact]}")
    if plural != PRESETS:
        section = name if plural in ("algorithms", "filters") else KIND_OF[plural]
        rows = [(f"{section}.{p.key}", p.shown_default, p.allowed, p.meaning) for p in _parameters(plural, name)]
        _print_parameters(rows)


def _print_parameters(rows: Sequence[tuple[str, ...]]) -> None:
    if not rows:
        print("no parameters")
        return
    from rich.markup import escape
    from rich.table import Table

    from fedsim.report.tables import show

    table = Table("parameter", "default", "type", "meaning", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(escape, row))
    show(table)
