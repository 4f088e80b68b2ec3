"""A metric of a run's objective: which direction is better, and how its values are compared and printed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.errors import ConfigError
from fedsim.payload import LARGEST_METRIC, TRAINING

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

    def crossing(self, values: Values, target: float, axis: NDArray[Any]) -> float | None:
        """Where on `axis` the best of the values so far reaches the target, interpolated linearly between two of them
        (McMahan et al. 2017, section 3); None if it does not."""
        best = (np.fmax if self.higher_is_better else np.fmin).accumulate(np.asarray(values, np.float64))
        reached = np.flatnonzero(self.reached(best, target))
        if not reached.size:
            return None
        after, before = int(reached[0]), max(0, int(reached[0]) - 1)
        gained = best[after] - best[before]
        share = (target - best[before]) / gained if gained and np.isfinite(gained) else 1.0
        return float(axis[before] + share * (axis[after] - axis[before]))

    def check_target(self, target: float, name: str) -> None:
        """Raises ConfigError for a target, given as `name`, that no value of the metric can reach."""
        if self.percent and not 0 < target <= 1:
            raise ConfigError(f"{name} must be above 0 and at most 1, not {target:g}: {self.name} is a share")

    def best_index(self, values: Values) -> int:
        """The place of the best value, the first of equal ones; NaN counts as the worst."""
        worst = -np.inf if self.higher_is_better else np.inf
        known = np.where(np.isnan(values), worst, values)
        return int(known.argmax() if self.higher_is_better else known.argmin())

    def worst(self, values: Values) -> Values:
        """The worst value of each row; NaN entries are left out."""
        return np.asarray((np.fmin if self.higher_is_better else np.fmax).reduce(values, axis=1), np.float64)


ACCURACY = Metric("accuracy")


def possible_values(objective: str, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The least and the greatest value of each of these metrics, which clients measure for this objective."""
    declared: Mapping[str, tuple[float, float]] = getattr(registry.find("objective", objective), "ranges", {})

    def of(name: str) -> tuple[float, float]:
        plain = name.removeprefix(TRAINING)
        low, high = declared.get(plain, (0, 1) if Metric(plain).percent else (-LARGEST_METRIC, LARGEST_METRIC))
        return max(low, -LARGEST_METRIC), min(high, LARGEST_METRIC)

    return {name: of(name) for name in names}


def read_metrics(manifest: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that a run's manifest declares, the main one first; accuracy for manifests that declare none."""
    declared = manifest.get("objective", {}).get("metrics") or {ACCURACY.name: ACCURACY.direction}
    return {name: Metric(name, direction) for name, direction in declared.items()}
