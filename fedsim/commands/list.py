"""`fedsim list`: the names that a configuration can use, with their parameters."""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any, get_type_hints

from fedsim import registry
from fedsim.config import constraint, key_of

if TYPE_CHECKING:
    from fedsim.sweeps.sweep_file import Sweep

KIND_OF = {kind.plural: name for name, kind in registry.KINDS.items()}
PRESETS = "presets"


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "list", help="what a configuration can name: algorithms, datasets, models, attacks, presets and the rest"
    )
    parser.add_argument("what", nargs="?", choices=[*KIND_OF, PRESETS], help="only these (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    kinds = [args.what] if args.what else [*KIND_OF, PRESETS]
    found = {plural: _entries(plural) for plural in kinds}
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    for plural, entries in found.items():
        print(f"{plural}:")
        for entry in entries:
            params = ", ".join(_param(key, entry) for key in entry["params"])
            print(f"  {entry['name']:<16} {entry['about']}" + (f"  [{params}]" if params else ""))
            for fact in ("scale", "takes"):
                if fact in entry:
                    print(f"  {'':<16} {fact}: {entry[fact]}")
    return 0


def _param(key: str, entry: dict[str, Any]) -> str:
    """ "mu=0.01 (at least 0)"."""
    bounds = entry["constraints"].get(key)
    return f"{key}={_shown(entry['params'][key])}" + (f" ({bounds})" if bounds else "")


def _shown(value: Any) -> str:
    """As a configuration sets it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return (",".join(map(str, value)) if isinstance(value, tuple) else str(value)) or '""'


def _entries(plural: str) -> list[dict[str, Any]]:
    if plural == PRESETS:
        from fedsim.sweeps.sweep_file import preset_texts, read_sweep

        return [_preset(read_sweep(name)) for name in sorted(preset_texts())]
    return [_entry(KIND_OF[plural], name) for name in registry.names(KIND_OF[plural])]


def _preset(found: "Sweep") -> dict[str, Any]:
    facts = {"about": found.about, "scale": found.scale, "takes": found.takes}
    return {"name": found.name, "runs": len(found.cells), **facts, "params": {}, "constraints": {}}


def _entry(kind: str, name: str) -> dict[str, Any]:
    """Name, description, and the defaults and constraints of the parameters by key."""
    params = getattr(registry.find(kind, name), "params", None)
    fields = dataclasses.fields(params) if params else ()
    hints = get_type_hints(params, include_extras=True) if params else {}
    return {
        "name": name,
        "about": registry.describe(kind, name),
        "params": {key_of(field.name): _default(field) for field in fields},
        "constraints": {key_of(f.name): text for f in fields if (text := constraint(hints[f.name]))},
    }


def _default(field: "dataclasses.Field[Any]") -> Any:
    return None if field.default is dataclasses.MISSING else field.default
