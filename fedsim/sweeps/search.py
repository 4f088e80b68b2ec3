"""Hyper-parameter search: what a sweep file may ask for. Candidates are compared on validation data that clients hold
back from their training data; `fedsim.sweeps.study` chooses them.

[search]
points = 20                                       # candidates chosen by Optuna; without it, every combination of lists
validation = 0.2                                  # share of each client's training data that is held back
[search.over]
lr = { low = 1e-3, high = 1.0, log = true }       # a range, only with points
batch-size = { low = 8, high = 64, step = 8 }     # whole numbers: so are both ends, or int = true
momentum = [0.0, 0.9]                             # these values, or { choices = [0.0, 0.9] }
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from math import isfinite
from typing import Annotated, Any, Literal

from annotated_types import Interval

from fedsim.config import NonNegativeInt, PositiveInt, RunConfig, Scalar, build, parse
from fedsim.errors import ConfigError

Point = dict[str, Scalar]


@dataclass(frozen=True)
class SearchOptions:
    """The keys of [search] besides the table `over`."""

    points: NonNegativeInt = 0  # candidates; 0: every combination
    validation: Annotated[float, Interval(gt=0, lt=1)] = 0.2  # share of the training data that is held back
    sampler: Literal["tpe", "random"] = "tpe"  # how candidates are chosen after the first ones
    startup: NonNegativeInt = 5  # candidates that are random, and complete before one is pruned
    pruning: Literal["auto", "median", "none"] = (
        "auto"  # stop bad candidates early; auto: median with points, else none
    )
    warmup: NonNegativeInt = 5  # rounds that no candidate is stopped before
    batch: PositiveInt = 4  # candidates that are chosen together, whatever the number of jobs
    seed: NonNegativeInt = 0  # of the choices


@dataclass(frozen=True)
class Range:
    """An interval of [search.over], uniform or uniform in the logarithm, of numbers or whole numbers."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    int: bool = False

    def __post_init__(self) -> None:
        valid = isfinite(self.low) and isfinite(self.high) and self.low < self.high and (self.low > 0 or not self.log)
        if not valid or (self.step is not None and (self.step <= 0 or self.log)):
            raise ValueError("needs low < high, low > 0 with log, and step > 0 without log")


Choices = tuple[Scalar, ...]


@dataclass(frozen=True)
class Search(SearchOptions):
    """A search over `space`: lists of values, and ranges."""

    space: tuple[tuple[str, Range | Choices], ...] = ()

    @cached_property
    def grid(self) -> list[Point]:
        """Every combination, unless a number of points was asked for."""
        lists = [(key, values) for key, values in self.space if isinstance(values, tuple)]
        combinations = product(*(values for _, values in lists))
        return [] if self.points else [{key: v for (key, _), v in zip(lists, c, strict=True)} for c in combinations]

    @property
    def count(self) -> int:
        """How many candidates are tried."""
        return self.points or len(self.grid)

    @property
    def prunes(self) -> bool:
        return self.pruning == "median" or (self.pruning == "auto" and self.points > 0)

    @property
    def together(self) -> int:
        """How many candidates are chosen before the first of them has run: all of a grid, unless bad ones are stopped."""
        return self.batch if self.points or self.prunes else self.count

    @property
    def definition(self) -> dict[str, Any]:
        """What cannot change once the search has begun: everything but the number of points."""
        return {key: value for key, value in asdict(self).items() if key != "points"}

    def candidate(self, config: RunConfig, point: Mapping[str, Scalar]) -> RunConfig:
        """The configuration of a candidate. It does not stop at a target: candidates could not be told apart."""
        return parse({**config.flat(), "validation": self.validation, "target": 0, **point})

    def check(self, config: RunConfig) -> None:
        """Raises ConfigError if a key or an end of a range is not valid for this run."""
        for key, values in self.space:
            for value in values if isinstance(values, tuple) else ends(values):
                self.candidate(config, {key: value})


def ends(found: Range) -> tuple[float, float]:
    return (int(found.low), int(found.high)) if found.int else (found.low, found.high)


def read_search(tree: Mapping[str, Any], source: str) -> Search | None:
    """Reads the [search] table of the sweep file `source`; None if it is empty. Raises ConfigError if a key or a
    range is not valid."""
    if not tree:
        return None
    if not (over := _flat(tree.get("over", {}))):
        raise ConfigError(f"{source}: [search.over] names no key to search over")
    space = tuple((key, _values(values, f"{source}: {key}")) for key, values in over.items())
    try:
        options = {key: value for key, value in tree.items() if key != "over"}
        search = build(Search, options, "search", extra={"space": space})
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if not search.points and (ranges := [key for key, values in space if isinstance(values, Range)]):
        raise ConfigError(f"{source}: {ranges[0]} is a range, which needs search.points, the number of candidates")
    return search


def _flat(over: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables become dotted keys, except those that are a range or a list of choices."""
    found: dict[str, Any] = {}
    for key, value in over.items():
        nested = isinstance(value, Mapping) and not set(value) & {"low", "high", "choices"}
        found |= _flat(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return found


def _values(given: Any, where: str) -> Range | Choices:
    """What a key of [search.over] may be."""
    choices = given.get("choices") if isinstance(given, Mapping) and set(given) == {"choices"} else given
    if isinstance(choices, list) and choices:
        return tuple(choices)
    try:
        whole = isinstance(given["low"], int) and isinstance(given["high"], int)
        return build(Range, {"int": whole, **given}, "")
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        names = ", ".join(field.name for field in fields(Range))
        needs = f"must be a list, {{ choices = [...] }}, or a range {{ low = ..., high = ..., log = true }} of {names}"
        told = f" ({error})" if isinstance(error, ConfigError) or type(error) is ValueError else ""
        raise ConfigError(f"{where} {needs}{told}") from error
