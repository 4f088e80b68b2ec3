"""Hyper-parameter search: candidates are compared on validation data that clients hold back from training, never on tests.

[search]
points = 8                                        # random candidates; without it, every combination of lists
validation = 0.2                                  # share of each client's training data that is held back
[search.over]
lr = [0.01, 0.03, 0.1]
weight-decay = { low = 1e-5, high = 1e-2, log = true }   # a range, only for random candidates
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log
from typing import Any

from fedsim.config import RunConfig, Scalar, parse
from fedsim.errors import ConfigError, unknown
from fedsim.rng import stream

Point = dict[str, Scalar]


@dataclass(frozen=True)
class Search:
    points: tuple[Point, ...]
    validation: float

    def candidates(self, config: RunConfig) -> list[RunConfig]:
        """The run with every candidate's values, judged on validation data."""
        base = {**config.flat(), "validation": self.validation}
        return [parse({**base, **point}) for point in self.points]

    def chosen(self, config: RunConfig, scores: Sequence[float | None]) -> RunConfig:
        """The run with the values of the best candidate; the first of equal ones."""
        known = [(score, -index) for index, score in enumerate(scores) if score is not None]
        if not known:
            raise ConfigError("no candidate of the search finished: there is nothing to choose from")
        return parse({**config.flat(), **self.points[-max(known)[1]]})


def read_search(tree: Mapping[str, Any], source: str) -> Search | None:
    """The [search] part of a sweep file."""
    if not tree:
        return None
    if strange := sorted(set(tree) - {"points", "validation", "over"}):
        unknown(f"part of [search] in {source}", strange[0], ("points", "validation", "over"))
    over = tree.get("over", {})
    if not over:
        raise ConfigError(f"{source}: [search.over] names no key to search over")
    validation = float(tree.get("validation", 0.2))
    if not 0 < validation < 1:
        raise ConfigError(f"{source}: search.validation must be between 0 and 1, not {validation}")
    if "points" in tree:
        return Search(tuple(_random(over, int(tree["points"]), source)), validation)
    if ranges := [key for key, values in over.items() if not isinstance(values, list)]:
        raise ConfigError(
            f"{source}: {ranges[0]} is a range, which needs search.points, the number of random candidates"
        )
    return Search(tuple(dict(zip(over, point, strict=True)) for point in product(*over.values())), validation)


def _random(over: Mapping[str, Any], points: int, source: str) -> list[Point]:
    """Seeded, so that the same file tries the same candidates."""
    return [{key: _draw(values, index, key, source) for key, values in over.items()} for index in range(points)]


def _draw(values: Any, index: int, key: str, source: str) -> Scalar:
    rng = stream(0, index, key)
    if isinstance(values, list):
        choice: Scalar = values[int(rng.integers(len(values)))]
        return choice
    try:
        low, high, logarithmic = float(values["low"]), float(values["high"]), bool(values.get("log", False))
        return float(exp(rng.uniform(log(low), log(high))) if logarithmic else rng.uniform(low, high))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {key} must be a list, or {{ low = ..., high = ..., log = true }}") from error
