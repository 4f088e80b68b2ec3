"""Sweep files: the keys that several runs share, and those in which they differ.

    about = "what it shows or reproduces"
    scale = "full size"            # shown by `fedsim list presets` (optional)
    takes = "3 hours"              # likewise
    include = "common.toml"        # another sweep file to start from (optional)
    baseline = "wait-for-all"      # the cell that speed-ups are against (optional; see `target` of a run)
    heatmap = ["attack", "lr"]      # rows and columns of a heat map in the report (optional)
    [base]                         # keys of every run
    dataset = "digits"
    [grid]                         # every combination of these
    algorithm = ["fedavg", "fedavg-ft"]
    seed = [0, 1, 2]
    [with.fedavg-ft]               # further keys of the runs with this algorithm
    "fedavg-ft.epochs" = 2
    [with."lr=0.1, seed=2"]        # likewise of the runs with these values
    momentum = 0.5
    [cell.wait-for-all]            # runs under a name, with keys of their own; crossed with the grid
    pace = "synchronous"
    [search]                       # first choose further keys on validation data: see fedsim.sweeps.search
    [published]                    # numbers of a paper, for reports: see fedsim.sweeps.published
    [report]
    clients = [0]                  # the clients that reports are about (default: all)

A preset is a sweep file that ships with the package and is found by its name.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from fedsim.config import RunConfig, Scalar, assignments, flatten, parse
from fedsim.errors import ConfigError, unknown
from fedsim.sweeps.published import Published, read_published
from fedsim.sweeps.search import Search, read_search

TEXTS = ("about", "scale", "takes", "include", "baseline", "heatmap")
PARTS = (*TEXTS, "base", "grid", "with", "cell", "search", "published", "report")


@dataclass(frozen=True)
class Sweep:
    """A sweep file, with the configuration of every run."""

    name: str
    about: str
    scale: str
    takes: str
    cells: dict[str, RunConfig]  # by name, which is also the name of the run folder
    titles: dict[str, str]  # name -> TITLE of the [cell.TITLE] it belongs to, or ""
    baselines: dict[str, str]  # name -> the run of the cell `baseline` that has the same values of the grid
    heatmap: tuple[str, ...]  # the keys of its rows and columns; empty: none
    search: Search | None
    published: Published
    reported: tuple[int, ...] = ()  # the clients that reports are about; empty: all


def preset_texts() -> dict[str, str]:
    """The text of every preset, by name."""
    folder = files("fedsim") / "presets"
    return {p.name.removesuffix(".toml"): p.read_text() for p in folder.iterdir() if p.name.endswith(".toml")}


def read_sweep(source: str, overrides: Iterable[str] = ()) -> Sweep:
    """Reads a sweep file by its path or a preset by its name; `overrides` ("k=v") apply to every run.

    Raises ConfigError if it cannot be read or is not valid.
    """
    name, tree = _tree(source)
    cells = tree.get("cell", {})
    if not cells and not tree.get("grid"):
        raise ConfigError(f"{source} holds no runs: it needs a [grid] or at least one [cell.NAME]")
    shared, further = flatten(tree.get("base", {})), assignments(overrides)
    runs: dict[str, RunConfig] = {}
    titles: dict[str, str] = {}
    baselines: dict[str, str] = {}
    if (baseline := str(tree.get("baseline", ""))) and baseline not in cells:
        unknown(f"baseline of {source}", baseline, cells)
    for cell, keys in (cells or {"": {}}).items():
        for point in _points(tree.get("grid", {}), source):
            values = {**shared, **flatten(keys), **point, **further}
            label = _label(cell, point)
            runs[label] = parse(
                {**shared, **_special(tree.get("with", {}), values), **flatten(keys), **point, **further}
            )
            titles[label] = cell
            if baseline:
                baselines[label] = _label(baseline, point)
    known = set(cells) or {config.algorithm for config in runs.values()}
    return Sweep(
        name,
        about=str(tree.get("about", "")),
        scale=str(tree.get("scale", "")),
        takes=str(tree.get("takes", "")),
        cells=runs,
        titles=titles,
        baselines=baselines,
        heatmap=_heatmap(tree.get("heatmap", []), source),
        search=read_search(tree.get("search", {}), source),
        published=read_published(tree.get("published", {}), known, source),
        reported=_reported(tree.get("report", {}), runs.values(), source),
    )


def grid_cells(grid: Mapping[str, list[Scalar]], shared: Mapping[str, Scalar]) -> dict[str, RunConfig]:
    """The configuration of every combination of the values in `grid`, by its name; `shared`: keys of all of them."""
    return {_label("", point): parse({**shared, **point}) for point in _points(grid, "the grid")}


def _special(tables: Mapping[str, Mapping[str, Any]], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The further keys of a run with these values, from the tables [with.ALGORITHM] and [with."KEY=VALUE, ..."]."""
    special: dict[str, Scalar] = {}
    for name, keys in tables.items():
        wanted = assignments(name.split(",")) if "=" in name else {"algorithm": name}
        if all(str(values.get(key, "")) == value for key, value in wanted.items()):
            special |= flatten(keys)
    return special


def _heatmap(keys: Any, source: str) -> tuple[str, ...]:
    if not isinstance(keys, list) or len(keys) not in (0, 2):
        raise ConfigError(f"{source}: heatmap needs the keys of its rows and columns, such as ['attack', 'aggregator']")
    return tuple(map(str, keys))


def _reported(tree: Mapping[str, Any], runs: Iterable[RunConfig], source: str) -> tuple[int, ...]:
    """The clients that reports are about. Raises ConfigError unless all runs have them."""
    if strange := sorted(set(tree) - {"clients"}):
        unknown(f"part of [report] in {source}", strange[0], ["clients"])
    chosen, fewest = tree.get("clients", []), min(config.clients for config in runs)
    if not isinstance(chosen, list) or any(client not in range(fewest) for client in chosen):
        raise ConfigError(f"{source}: [report] clients={chosen} must list clients from 0 to {fewest - 1}")
    return tuple(chosen)


def _points(grid: Mapping[str, Any], source: str) -> list[dict[str, Scalar]]:
    """Every combination of the values in [grid]."""
    axes = _axes(grid)
    if single := [key for key, values in axes.items() if not isinstance(values, list) or not values]:
        raise ConfigError(f"{source}: [grid] needs a list of values for {single[0]}")
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def _axes(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables become dotted keys; lists stay lists."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _axes(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def _label(cell: str, point: Mapping[str, Scalar]) -> str:
    """The name of a run: its cell and its values of the grid."""
    places = [str(value) if key == "algorithm" else f"{key}={value}" for key, value in point.items()]
    return "-".join(part.replace("/", "_") for part in [cell, *places] if part)


def _tree(source: str) -> tuple[str, dict[str, Any]]:
    """Name and content of a sweep file, with what it includes."""
    name, text, folder = _text(source)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    if strange := sorted(set(tree) - set(PARTS)):
        unknown(f"part of {source}", strange[0], PARTS)
    if "include" in tree:
        other = str(tree.pop("include"))
        _, common = _tree(other if "." not in other or folder is None else str(folder / other))
        tree = _merged(common, tree)
    return name, tree


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the values of `above`, table by table."""
    both = dict(below)
    for key, value in above.items():
        table = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merged(both[key], value) if table else value
    return both


def _text(source: str) -> tuple[str, str, Path | None]:
    """Name, text and folder (None for a preset) of a sweep file."""
    path = Path(source)
    if path.suffix != ".toml":
        known = preset_texts()
        if source not in known:
            unknown("preset", source, known)
        return source, known[source], None
    try:
        return path.stem, path.read_text(), path.parent
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {source}: {error}") from error
