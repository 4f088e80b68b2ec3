"""One row of the benchmark table: a measurement beside its reference, or the reason why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """`measured` and `reference` in `unit`, less is better. `limit` is the highest acceptable ratio, if there is one."""

    name: str
    measured: float
    reference: float
    unit: str
    limit: float | None = None
    pairs: Sequence[tuple[float, float]] = ()  # the single measurements (measured, reference), in order
    workload: str = ""  # W1, W2 or W3 for a round of training, and the program that did it
    program: str = ""
    load: float = 0.0  # the machine's load average (1 minute) before the measurements; the highest
    others: float = 0.0  # cores that other processes used just before the measurements; the highest

    @classmethod
    def of(cls, name: str, pairs: Sequence[tuple[float, float]], unit: str, limit: float | None = None) -> "Comparison":
        """The medians of pairs of measurements that were made alternately."""
        return cls(name, median(a for a, _ in pairs), median(b for _, b in pairs), unit, limit, tuple(pairs))

    @property
    def ratio(self) -> float:
        return self.measured / self.reference

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio of the single measurements, which shows how noisy the machine was."""
        ratios = [a / b for a, b in self.pairs] or [self.ratio]
        return min(ratios), max(ratios)

    @property
    def within_limit(self) -> bool:
        return self.limit is None or self.ratio <= self.limit

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "spread": self.spread, "within_limit": self.within_limit}


@dataclass(frozen=True)
class NotRun:
    """A program that could not be measured, and why."""

    name: str
    reason: str
    workload: str = ""
    program: str = ""

    def json(self) -> dict[str, Any]:
        return asdict(self)


Row = Comparison | NotRun


def from_json(row: Mapping[str, Any]) -> Row:
    """The opposite of `json()`."""
    kind = NotRun if "reason" in row else Comparison
    made: Row = kind(**{field.name: row[field.name] for field in fields(kind)})
    return made
