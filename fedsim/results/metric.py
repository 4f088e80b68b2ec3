"""A metric of a run's objective: which direction is better, and how its values are compared and printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """`direction` is "max" if higher values are better, "min" if lower ones are. Accuracies and success rates are fractions
    that tables print in percent; every other metric is printed as it is."""

    name: str
    direction: Literal["max", "min"] = "max"

    @property
    def higher_is_better(self) -> bool:
        return self.direction == "max"

    @property
    def percent(self) -> bool:
        return self.name.endswith(("accuracy", "attack-success"))

    @property
    def scale(self) -> float:
        """The factor between a stored and a printed value."""
        return 100.0 if self.percent else 1.0

    @property
    def format(self) -> str:
        """The format specification of a scaled value in tables."""
        return ".2f" if self.percent else ".4g"

    def text(self, value: float) -> str:
        """One value with its unit: "37.5 %", "0.2519"."""
        return f"{100 * value:.1f} %" if self.percent else f"{value:.4g}"

    def reached(self, values: Values, target: float) -> NDArray[np.bool_]:
        """Where `values` are at least as good as `target`."""
        return values >= target if self.higher_is_better else values <= target

    def best_index(self, values: Values) -> int:
        """The place of the best value, the first of equal ones; NaN counts as the worst."""
        worst = -np.inf if self.higher_is_better else np.inf
        known = np.where(np.isnan(values), worst, values)
        return int(known.argmax() if self.higher_is_better else known.argmin())

    def worst(self, values: Values) -> Values:
        """The worst value of each row; NaN entries are left out."""
        return np.asarray((np.fmin if self.higher_is_better else np.fmax).reduce(values, axis=1), np.float64)


ACCURACY = Metric("accuracy")


def read_metrics(manifest: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that a run's manifest declares, the main one first; accuracy for manifests that declare none."""
    declared = manifest.get("objective", {}).get("metrics") or {ACCURACY.name: ACCURACY.direction}
    return {name: Metric(name, direction) for name, direction in declared.items()}
