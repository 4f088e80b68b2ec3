"""Runs that differ in nothing but their seed, taken together: mean and spread of what came out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedsim.plan import Planned
from fedsim.report.runs import Costs, Run, Series, Values

ASIDE = ("seed", "workers", "worker-gpus", "checkpoint-every", "timeout", "data-root", "device")  # no part of a setting
DATA = ("dataset", "partition", "clients", "validation")  # what must agree for clients to be the same clients
BARE = ("dataset", "partition", "pace", "stragglers")  # keys whose values speak for themselves
WORST = 0.1  # share of the clients that counts as the worst


@dataclass(frozen=True)
class Spread:
    """A number over the seeds; `std` (n - 1) is None for a single one, `mean` None where nothing was measured. It was
    measured in `count` runs of `asked`."""

    mean: float | None
    std: float | None
    count: int
    asked: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        found = [v for v in values if v is not None]
        if not found:
            return cls(None, None, 0, len(values))
        return cls(mean(found), stdev(found) if len(found) > 1 else None, len(found), len(values))

    def text(self, digits: int | None = 3, scale: float = 1.0) -> str:
        """The mean and its spread; and how many runs got there, if not all did."""
        if self.mean is None:
            return "-"
        form = ".2g" if digits is None else f".{digits}f"
        spread = "" if self.std is None else f" ± {self.std * scale:{form}}"
        some = f" ({self.count} of {self.asked})" if self.count < self.asked else ""
        return f"{self.mean * scale:{form}}{spread}{some}"


@dataclass(frozen=True)
class Group:
    """One setting, its runs, and how many further ones were asked for and are missing."""

    label: str
    config: Mapping[str, Any]
    runs: tuple[Run, ...]
    missing: int = 0
    published: Mapping[str, Spread] = field(default_factory=dict)  # by kind of accuracy
    source: str = ""

    @property
    def seeds(self) -> str:
        asked = len(self.runs) + self.missing
        return f"{len(self.runs)} of {asked}" if self.missing else str(asked)

    @cached_property
    def data(self) -> str:
        """The same for settings whose clients hold the same data."""
        return repr(sorted((k, v) for k, v in self.config.items() if k in DATA or k.startswith("partition.")))

    def over_seeds(self, number: Callable[[Series], float | None], kind: str = "personal") -> Spread:
        measured = [run.series(kind) for run in self.runs]
        return Spread.of([number(series) if len(series.rounds) else None for series in measured])

    def best(self, kind: str = "personal") -> Spread:
        """The best mean accuracy over the rounds; of the personal models it is the BMTA."""
        return self.over_seeds(lambda series: float(series.mean.max()), kind)

    def final(self) -> Spread:
        return self.over_seeds(lambda series: float(series.mean[-1]))

    def worst(self) -> Spread:
        """The worst tenth of the clients at the end."""
        return self.over_seeds(worst_clients)

    def curve(self, kind: str = "personal", over: str = "rounds") -> "Band | None":
        """Mean accuracy over the seeds, as far as all of them got."""
        series = [found for run in self.runs if len((found := run.series(kind)).rounds)]
        if not series:
            return None
        length = min(len(each.rounds) for each in series)
        means = np.array([each.mean[:length] for each in series])
        worst = np.array([each.worst[:length] for each in series]).mean(axis=0)
        place = np.array([getattr(each, over)[:length] for each in series], np.float64).mean(axis=0)
        return Band(place, means.mean(axis=0), means.min(axis=0), means.max(axis=0), worst)

    def rounds_to(self, target: float) -> Spread:
        return self.over_seeds(lambda series: _first(series, target, series.rounds))

    def seconds_to(self, target: float) -> Spread:
        """On the run's own clock."""
        return self.over_seeds(lambda series: _first(series, target, series.times))

    def bytes_to(self, target: float) -> Spread:
        return self.over_seeds(lambda series: _first(series, target, series.traffic))

    def cost(self, number: Callable[[Costs], float | None]) -> Spread:
        return Spread.of([number(run.costs) for run in self.runs])

    @cached_property
    def clients(self) -> dict[tuple[int, int], float]:
        """(seed, client) -> accuracy in the round of the BMTA, as far as it was measured."""
        found: dict[tuple[int, int], float] = {}
        for run in self.runs:
            series = run.series("personal")
            if len(series.rounds):
                best = series.values[int(series.mean.argmax())]
                found |= {(int(run.config["seed"]), c): float(v) for c, v in zip(run.clients, best, strict=True)}
        return {key: value for key, value in found.items() if not np.isnan(value)}


@dataclass(frozen=True)
class Band:
    """A curve over the seeds: where its points lie, their mean, the lowest and highest seed, and the worst client."""

    place: Values
    mean: Values
    low: Values
    high: Values
    worst: Values


def worst_clients(series: Series) -> float:
    """Mean final accuracy of the worst tenth of the clients, at least one."""
    final = np.sort(series.values[-1][~np.isnan(series.values[-1])])
    return float(final[: max(1, round(WORST * len(final)))].mean())


def group(runs: Sequence[Run], missing: Sequence[Planned] = ()) -> list[Group]:
    """Runs with the same configuration but for the seed belong together, in the order of their first one. `missing` were
    asked for, too, but are not there."""
    together: dict[str, tuple[Planned, list[Run], list[Planned]]] = {}
    for planned, run in [*((run.planned, run) for run in runs), *((planned, None) for planned in missing)]:
        entry = together.setdefault(repr(sorted(_setting(planned).items())), (planned, [], []))
        if run is None:
            entry[2].append(planned)
        else:
            entry[1].append(run)
    names = _labels([first for first, _, _ in together.values()])
    return [
        Group(name, _setting(first), tuple(members), len(absent), _published(first), first.source)
        for name, (first, members, absent) in zip(names, together.values(), strict=True)
    ]


def _published(planned: Planned) -> dict[str, Spread]:
    return {kind: Spread(mean, std, 1, 1) for kind, (mean, std) in planned.published.items()}


def _setting(planned: Planned) -> dict[str, Any]:
    return {key: value for key, value in planned.config.items() if key not in ASIDE}


def _labels(settings: Sequence[Planned]) -> list[str]:
    """The cell of the sweep, or the algorithm; and whatever else tells settings of this name apart."""
    heads = [planned.title or str(planned.config["algorithm"]) for planned in settings]
    found = []
    for head, planned in zip(heads, settings, strict=True):
        own = _setting(planned)
        same = [_setting(other) for name, other in zip(heads, settings, strict=True) if name == head]
        varying = [key for key in own if len({repr(setting.get(key)) for setting in same}) > 1]
        rest = [str(own[key]) if key in BARE else f"{key}={own[key]}" for key in sorted(varying, key=_order)]
        found.append(", ".join([head, *rest]))
    return found


def _order(key: str) -> int:
    return BARE.index(key) if key in BARE else len(BARE)


def _first(series: Series, target: float, axis: Any) -> float | None:
    reached = np.flatnonzero(series.mean >= target)
    return float(axis[reached[0]]) if reached.size else None
