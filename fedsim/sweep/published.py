"""Numbers of a paper, in the shape of its table: a column for certain values of the configuration, a row per cell.

[published]
source = "Table 1 of the paper"
keys = ["dataset", "partition.shared", "measure"]              # measure: personal (default), local or global
columns = [["mnist", true, "personal"], ["mnist", true, "global"]]
[published.rows]                                               # by the name of a cell, or of an algorithm
fedavg = ["98.46 0.21", "97.1"]                                # percent, and a deviation; "" where there is none

Reports show a run beside the numbers of the columns whose values agree with its configuration.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedsim.config import RunConfig
from fedsim.errors import ConfigError, unknown
from fedsim.results.curves import KINDS

MEASURE = "measure"
PARTS = ("source", "keys", "columns", "rows")
PublishedNumber = tuple[float, float | None]  # accuracy from 0 to 1, and its standard deviation


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
    keys, columns = tree.get("keys", []), tree.get("columns", [[]])
    if wrong := [column for column in columns if len(column) != len(keys)]:
        raise ConfigError(f"{source}: a column of [published] has a value for each of {keys}, not {wrong[0]}")
    named = tuple(dict(zip(keys, column, strict=True)) for column in columns)
    for column in named:
        if column.get(MEASURE, "personal") not in KINDS:
            unknown(f"measure of [published] in {source}", str(column[MEASURE]), KINDS)
    rows = {}
    for name, numbers in tree.get("rows", {}).items():
        if name not in known:
            unknown(f"row of [published] in {source}", name, known)
        if len(numbers) != len(columns):
            counts = f"{len(numbers)} numbers for {len(columns)} columns"
            raise ConfigError(f"{source}: row {name} of [published] has {counts}")
        rows[name] = tuple(_number(text, f"{source}: row {name} of [published]") for text in numbers)
    return Published(str(tree.get("source", "")), named, rows)


def _value(config: RunConfig, key: str) -> Any:
    section, dot, name = key.rpartition(".")
    return getattr(config.params(section) if dot else config, name.replace("-", "_"), None)


def _number(text: str | float, where: str) -> PublishedNumber | None:
    """ "98.46 0.21" as fractions; None for an empty text."""
    try:
        values = [float(part) / 100 for part in str(text).split()]
    except ValueError:
        values = [2.0]  # refused below
    if len(values) > 2 or any(not 0 <= value <= 1 for value in values):
        raise ConfigError(f"{where}: {text!r} is not an accuracy in percent and its deviation, such as '98.46 0.21'")
    return (values[0], values[1] if len(values) == 2 else None) if values else None
