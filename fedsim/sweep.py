"""Sweep files: what several runs share, and what each changes.

    about = "one line"
    [base]                 # keys of every run
    dataset = "digits"
    [cell.wait-for-all]    # a run under a name, and its own keys
    pace = "synchronous"

A preset is a sweep file that ships with the package; its name is enough.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedsim.config import RunConfig, assignments, flatten, parse
from fedsim.errors import ConfigError, unknown


@dataclass(frozen=True)
class Sweep:
    name: str
    about: str
    cells: dict[str, RunConfig]


def presets() -> dict[str, str]:
    """Name and text of every sweep that ships."""
    folder = files("fedsim") / "presets"
    return {p.name.removesuffix(".toml"): p.read_text() for p in folder.iterdir() if p.name.endswith(".toml")}


def read(source: str, overrides: Iterable[str] = ()) -> Sweep:
    """A sweep file by its path, or a preset by its name."""
    name, text = _text(source)
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    if strange := sorted(set(tree) - {"about", "base", "cell"}):
        unknown(f"part of {source}", strange[0], ("about", "base", "cell"))
    if not tree.get("cell"):
        raise ConfigError(f"{source} holds no runs: it needs at least one [cell.NAME]")
    shared, further = flatten(tree.get("base", {})), assignments(overrides)
    cells = {cell: parse({**shared, **flatten(keys), **further}) for cell, keys in tree["cell"].items()}
    return Sweep(name, str(tree.get("about", "")), cells)


def _text(source: str) -> tuple[str, str]:
    path = Path(source)
    if path.suffix != ".toml":
        known = presets()
        if source not in known:
            unknown("preset", source, known)
        return source, known[source]
    try:
        return path.stem, path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error}") from error
