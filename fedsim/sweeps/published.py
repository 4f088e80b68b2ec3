"""Numbers of a paper, in the shape of its table: a column for certain values of the configuration, a row per cell.

[published]
source = "Table 1 of the paper"
keys = ["dataset", "partition.shared", "measure"]              # measure: personal (default), local, global or rounds
columns = [["mnist", true, "personal"], ["mnist", true, "global"]]
[published.rows]                                               # by the name of a cell, or of an algorithm
fedavg = ["98.46 0.21", "97.1"]                                # percent, and a deviation; "" where there is none

Numbers of the measure `rounds` are rounds to the target of the runs (`target`).

Reports show a run beside the numbers of the columns whose values agree with its configuration.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from fedsim.config import RunConfig
from fedsim.errors import ConfigError, unknown
from fedsim.results.curves import KINDS

MEASURE, ROUNDS = "measure", "rounds"
PARTS = ("source", "keys", "columns", "rows")
PublishedNumber = tuple[float, float | None]  # accuracy from 0 to 1, or rounds to the target; its standard deviation


@dataclass(frozen=True)
class Published:
    """The [published] table of a sweep file."""

    source: str = ""
    columns: tuple[dict[str, Any], ...] = ()
    rows: Mapping[str, tuple[PublishedNumber | None, ...]] | None = None

    def numbers_for(self, title: str, config: RunConfig) -> dict[str, PublishedNumber]:
        """Kind of model -> the published number, for a run of the cell `title` (empty: of its algorithm)."""
        numbers = (self.rows or {}).get(title or config.algorithm, ())
        found: dict[str, PublishedNumber] = {}
        for column, number in zip(self.columns, numbers, strict=False):
            if number is not None and all(_value(config, k) == v for k, v in column.items() if k != MEASURE):
                found[column.get(MEASURE, "personal")] = number
        return found


def read_published(tree: Mapping[str, Any], known: Collection[str], source: str) -> Published:
    """Reads the [published] table of the sweep file `source`, whose cells or algorithms are `known`. Raises
    ConfigError if a part, a measure, a row or a number is not valid."""
    if not tree:
        return Published()
    if strange := sorted(set(tree) - set(PARTS)):
        unknown(f"part of [published] in {source}", strange[0], PARTS)
    keys, columns, listed = tree.get("keys", []), tree.get("columns", [[]]), tree.get("rows", {})
    if not (_is_list_of(str, keys) and _is_list_of(list, columns) and _is_list_of(list, _values(listed))):
        raise ConfigError(
            f"{source}: [published] needs keys = [NAME, ...], columns = [[VALUE, ...], ...], rows.NAME = [...]"
        )
    if wrong := [column for column in columns if len(column) != len(keys)]:
        raise ConfigError(f"{source}: a column of [published] has a value for each of {keys}, not {wrong[0]}")
    named = tuple(dict(zip(keys, column, strict=True)) for column in columns)
    for column in named:
        if column.get(MEASURE, "personal") not in (*KINDS, ROUNDS):
            unknown(f"measure of [published] in {source}", str(column[MEASURE]), (*KINDS, ROUNDS))
    rows = {}
    for name, numbers in listed.items():
        if name not in known:
            unknown(f"row of [published] in {source}", name, known)
        if len(numbers) != len(columns):
            counts = f"{len(numbers)} numbers for {len(columns)} columns"
            raise ConfigError(f"{source}: row {name} of [published] has {counts}")
        where = f"{source}: row {name} of [published]"
        rows[name] = tuple(_number(text, c.get(MEASURE, ""), where) for c, text in zip(named, numbers, strict=True))
    return Published(str(tree.get("source", "")), named, rows)


def _is_list_of(kind: type[Any], found: object) -> bool:
    return isinstance(found, list) and all(isinstance(each, kind) for each in found)


def _values(table: object) -> object:
    return list(table.values()) if isinstance(table, Mapping) else None


def _value(config: RunConfig, key: str) -> Any:
    section, dot, name = key.rpartition(".")
    return getattr(config.params(section) if dot else config, name.replace("-", "_"), None)


def _number(text: str | float, measure: str, where: str) -> PublishedNumber | None:
    """ "98.46 0.21" as fractions, rounds as they are; None for an empty text."""
    scale, most, what = (1, inf, "a number of rounds") if measure == ROUNDS else (100, 1, "an accuracy in percent")
    try:
        values = [float(part) / scale for part in str(text).split()]
    except ValueError:
        values = [-1.0]  # refused below
    if len(values) > 2 or any(not 0 <= value <= most for value in values):
        example = "1474" if measure == ROUNDS else "98.46 0.21"
        raise ConfigError(f"{where}: {text!r} is not {what} and its deviation, such as {example!r}")
    return (values[0], values[1] if len(values) == 2 else None) if values else None
