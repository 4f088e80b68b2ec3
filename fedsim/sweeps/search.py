"""Hyper-parameter search. Candidates are compared on validation data that clients hold back from their training data.

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
from typing import Annotated, Any

from annotated_types import Interval

from fedsim.config import NonNegativeInt, RunConfig, Scalar, build, parse
from fedsim.errors import ConfigError
from fedsim.rng import stream

Point = dict[str, Scalar]


@dataclass(frozen=True)
class SearchOptions:
    """The keys of [search] besides the table `over`."""

    points: NonNegativeInt = 0  # random candidates; 0: every combination
    validation: Annotated[float, Interval(gt=0, lt=1)] = 0.2  # share of the training data that is held back


@dataclass(frozen=True)
class Range:
    """An interval of [search.over] that random candidates are drawn from, uniformly or uniformly in the logarithm."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Search:
    """The candidates of a search, and the share of the training data that they are compared on."""

    points: tuple[Point, ...]
    validation: float

    def candidates(self, config: RunConfig) -> list[RunConfig]:
        """A configuration per candidate, evaluated on validation data. All candidates run to the end: those that stop at a
        target could not be told apart."""
        base = {**config.flat(), "validation": self.validation, "target": 0}
        return [parse({**base, **point}) for point in self.points]

    def best_candidate(
        self, config: RunConfig, scores: Sequence[float | None], higher_is_better: bool = True
    ) -> RunConfig:
        """The configuration with the values of the best candidate, the first of equal ones. Candidates that failed have
        the score None; raises ConfigError if all failed."""
        sign = -1 if higher_is_better else 1
        finished = [(sign * score, index) for index, score in enumerate(scores) if score is not None]
        if not finished:
            raise ConfigError("no candidate of the search finished: there is nothing to choose from")
        return parse({**config.flat(), **self.points[min(finished)[1]]})


def read_search(tree: Mapping[str, Any], source: str) -> Search | None:
    """Reads the [search] table of the sweep file `source`; None if it is empty. Raises ConfigError if a key or a
    range is not valid."""
    if not tree:
        return None
    over = tree.get("over", {})
    if not over:
        raise ConfigError(f"{source}: [search.over] names no key to search over")
    try:
        options = build(SearchOptions, {key: value for key, value in tree.items() if key != "over"}, "search")
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if options.points:
        return Search(tuple(_random_points(over, options.points, source)), options.validation)
    if ranges := [key for key, values in over.items() if not isinstance(values, list)]:
        needs = "needs search.points, the number of random candidates"
        raise ConfigError(f"{source}: {ranges[0]} is a range, which {needs}")
    return Search(tuple(dict(zip(over, point, strict=True)) for point in product(*over.values())), options.validation)


def _random_points(over: Mapping[str, Any], count: int, source: str) -> list[Point]:
    """Random candidates from a fixed seed: the same file always gives the same ones."""
    return [{key: _draw(values, index, key, source) for key, values in over.items()} for index in range(count)]


def _draw(values: Any, index: int, key: str, source: str) -> Scalar:
    """The value of `key` in the candidate `index`, from a list or a Range."""
    rng = stream(0, index, key)
    if isinstance(values, list):
        choice: Scalar = values[int(rng.integers(len(values)))]
        return choice
    try:
        span = build(Range, values, key)
        return float(exp(rng.uniform(log(span.low), log(span.high))) if span.log else rng.uniform(span.low, span.high))
    except (AttributeError, TypeError, ValueError, ConfigError) as error:
        raise ConfigError(f"{source}: {key} must be a list, or {{ low = ..., high = ..., log = true }}") from error
