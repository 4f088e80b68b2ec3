"""Runs that differ in nothing but their seed, taken together: mean and spread of what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedsim.report.runs import Run, Series

APART = ("seed",)  # keys that may differ within a group
WORST = 0.1  # share of the clients that counts as the worst


@dataclass(frozen=True)
class Spread:
    """A number over the seeds; `std` (n - 1) is None for a single seed, `mean` None where nothing was measured."""

    mean: float | None
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        found = [v for v in values if v is not None]
        if not found:
            return cls(None, None, 0)
        return cls(mean(found), stdev(found) if len(found) > 1 else None, len(found))

    def text(self, digits: int = 3, sign: str = "±") -> str:
        if self.mean is None:
            return "-"
        spread = "" if self.std is None else f" {sign} {self.std:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


@dataclass(frozen=True)
class Group:
    """One setting and its runs."""

    label: str
    runs: tuple[Run, ...]

    def over_seeds(self, number: Callable[[Series], float | None], kind: str = "personal") -> Spread:
        measured = [run.series(kind) for run in self.runs]
        return Spread.of([number(series) if len(series.rounds) else None for series in measured])

    @cached_property
    def best(self) -> Spread:
        """BMTA: the best mean test accuracy over the rounds."""
        return self.over_seeds(lambda series: float(series.mean.max()))

    @cached_property
    def final(self) -> Spread:
        return self.over_seeds(lambda series: float(series.mean[-1]))

    @cached_property
    def worst(self) -> Spread:
        """The worst tenth of the clients at the end."""
        return self.over_seeds(worst_clients)

    def rounds_to(self, target: float) -> Spread:
        return self.over_seeds(lambda series: _first(series, target, series.rounds))

    def seconds_to(self, target: float) -> Spread:
        return self.over_seeds(lambda series: _first(series, target, series.times))


def worst_clients(series: Series) -> float:
    """Mean final accuracy of the worst tenth of the clients, at least one."""
    final = np.sort(series.values[-1][~np.isnan(series.values[-1])])
    return float(final[: max(1, round(WORST * len(final)))].mean())


def group(runs: Sequence[Run]) -> list[Group]:
    """Runs with the same configuration but for the seed belong together, in the order of their first one."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(repr(sorted(_setting(run).items())), []).append(run)
    settings = [_setting(members[0]) for members in together.values()]
    varying = [key for key in _keys(settings) if len({repr(setting.get(key)) for setting in settings}) > 1]
    return [
        Group(_label(setting, varying), tuple(members))
        for setting, members in zip(settings, together.values(), strict=True)
    ]


def _setting(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.config.items() if key not in APART}


def _keys(settings: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for setting in settings for key in setting))


def _label(setting: dict[str, Any], varying: Sequence[str]) -> str:
    """What tells a setting apart from the others: the algorithm, and whatever else differs; lengths do not count."""
    bare = [str(setting[key]) for key in ("dataset", "partition", "pace", "stragglers") if key in varying]
    said = ("algorithm", "dataset", "partition", "pace", "stragglers", "rounds", "eval-every")
    rest = [f"{key}={setting[key]}" for key in varying if key in setting and key not in said]
    return ", ".join([str(setting["algorithm"]), *bare, *rest])


def _first(series: Series, target: float, axis: Any) -> float | None:
    reached = np.flatnonzero(series.mean >= target)
    return float(axis[reached[0]]) if reached.size else None
