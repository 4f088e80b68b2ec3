"""One line of the benchmark table."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Row:
    """`ours` against `reference`; less is better. `limit` is the highest ratio that is acceptable, None if there is none."""

    name: str
    ours: float
    reference: float
    unit: str
    limit: float | None = None
    pairs: Sequence[tuple[float, float]] = ()  # the single measurements (ours, reference), in the order they were made

    @classmethod
    def of(cls, name: str, pairs: Sequence[tuple[float, float]], unit: str, limit: float | None = None) -> "Row":
        """The medians of measurements that were made in turns."""
        return cls(name, median(a for a, _ in pairs), median(b for _, b in pairs), unit, limit, tuple(pairs))

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest ratio of the single measurements: how noisy the machine was."""
        ratios = [a / b for a, b in self.pairs] or [self.ratio]
        return min(ratios), max(ratios)

    @property
    def holds(self) -> bool:
        return self.limit is None or self.ratio <= self.limit

    def json(self) -> dict[str, Any]:
        return {**vars(self), "ratio": self.ratio, "spread": self.spread, "holds": self.holds}
