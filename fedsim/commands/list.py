"""`fedsim list`: what can be named in a configuration."""

import argparse
import dataclasses
import json
from typing import Any

from fedsim import registry, sweep
from fedsim.config import key_of

PLURALS = {kind.plural: name for name, kind in registry.KINDS.items()}
PRESETS = "presets"


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser("list", help="algorithms, partitions, datasets, models, paces, stragglers, presets")
    parser.add_argument("what", nargs="?", choices=[*PLURALS, PRESETS], help="only this kind (default: all)")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    kinds = [args.what] if args.what else [*PLURALS, PRESETS]
    found = {plural: _entries(plural) for plural in kinds}
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    for plural, entries in found.items():
        print(f"{plural}:")
        for entry in entries:
            settings = ", ".join(f"{k}={v}" for k, v in entry["params"].items())
            print(f"  {entry['name']:<16} {entry['about']}" + (f"  [{settings}]" if settings else ""))
            for fact in ("scale", "takes"):
                if fact in entry:
                    print(f"  {'':<16} {fact}: {entry[fact]}")
    return 0


def _entries(plural: str) -> list[dict[str, Any]]:
    if plural == PRESETS:
        return [_preset(sweep.read(name)) for name in sorted(sweep.presets())]
    return [_entry(PLURALS[plural], name) for name in registry.names(PLURALS[plural])]


def _preset(found: sweep.Sweep) -> dict[str, Any]:
    """What it reproduces, at which scale, and how long it takes."""
    facts = {"about": found.about, "scale": found.scale, "takes": found.takes}
    return {"name": found.name, "runs": len(found.cells), **facts, "params": {}}


def _entry(kind: str, name: str) -> dict[str, Any]:
    params = getattr(registry.find(kind, name), "params", None)
    defaults = {key_of(f.name): _default(f) for f in dataclasses.fields(params)} if params else {}
    return {"name": name, "about": registry.describe(kind, name), "params": defaults}


def _default(field: "dataclasses.Field[Any]") -> Any:
    return None if field.default is dataclasses.MISSING else field.default
