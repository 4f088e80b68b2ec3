"""Settings: runs that have the same configuration except for the seed, with the mean and spread of their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedsim.attacks import SUCCESS
from fedsim.report.accumulate import Costs, Series
from fedsim.report.runs import RunResult, choose_metric
from fedsim.results.metric import ACCURACY, Metric, Values
from fedsim.results.record import MAY_CHANGE
from fedsim.sweeps.manifest import PlannedRun

IGNORED = ("seed", *MAY_CHANGE)  # keys that do not belong to a setting
# settings that agree in these have the same clients
DATA_KEYS = ("dataset", "partition", "clients", "validation", "public")
VALUE_ONLY = ("dataset", "partition", "pace", "stragglers")  # keys that labels leave out: their values are clear alone
WORST_SHARE = 0.1  # share of the clients that counts as the worst


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation (n - 1) over seeds. `mean` is None if nothing was measured, `std` for a single value.
    `count` of `expected` runs have a value."""

    mean: float | None
    std: float | None
    count: int
    expected: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "MeanStd":
        found = [value for value in values if value is not None and not isnan(value)]
        if not found:
            return cls(None, None, 0, len(values))
        return cls(mean(found), stdev(found) if len(found) > 1 else None, len(found), len(values))

    @classmethod
    def single(cls, value: float | None, std: float | None = None) -> "MeanStd":
        return cls(value, std, int(value is not None), int(value is not None))

    def text(self, form: str = ".3f", scale: float = 1.0) -> str:
        """ "98.46 ± 0.21", with "(2 of 3)" behind it if some runs have no value; "-" if none has."""
        if self.mean is None:
            return "-"
        spread = "" if self.std is None else f" ± {self.std * scale:{form}}"
        some = f" ({self.count} of {self.expected})" if self.count < self.expected else ""
        return f"{self.mean * scale:{form}}{spread}{some}"


@dataclass(frozen=True)
class Setting:
    """One configuration, its runs with different seeds, and the metric that is reported. `missing` is the number of
    planned runs that do not exist."""

    label: str
    config: Mapping[str, Any]
    runs: tuple[RunResult, ...]
    missing: int = 0
    published: Mapping[str, MeanStd] = field(default_factory=dict)  # by kind of model, and rounds to the target
    source: str = ""
    metric: Metric = ACCURACY

    @property
    def seeds(self) -> str:
        planned = len(self.runs) + self.missing
        return f"{len(self.runs)} of {planned}" if self.missing else str(planned)

    @cached_property
    def data(self) -> str:
        """Equal for settings whose clients hold the same data."""
        keys = [k for k in self.config if k in DATA_KEYS or k.startswith("partition.")]
        return repr(sorted((k, self.config[k]) for k in keys if k != "public" or self.config[k]))

    def series(self, kind: str = "personal") -> list[Series]:
        """The metric of every run that measured it."""
        found = [run.series(kind, self.metric.name) for run in self.runs]
        return [series for series in found if len(series.rounds)]

    def over_seeds(self, number: Callable[[Series], float | None], kind: str = "personal") -> MeanStd:
        found = [number(series) for series in self.series(kind)]
        return MeanStd.of([*found, *[None] * (len(self.runs) - len(found))])

    def best(self, kind: str = "personal") -> MeanStd:
        """The best mean over clients of all rounds; for the accuracy of personal models it is called BMTA."""
        return self.over_seeds(lambda series: series.best, kind)

    def final(self) -> MeanStd:
        return self.over_seeds(lambda series: float(series.mean[-1]))

    def worst(self) -> MeanStd:
        """The worst tenth of the clients at the end."""
        return self.over_seeds(worst_clients)

    def final_of(self, malicious: bool) -> MeanStd:
        """The mean over the malicious, or over the honest clients at the end; None for runs without an attack."""
        return MeanStd.of([_mean_of(run, malicious, self.metric.name) for run in self.runs])

    def attack_success(self) -> MeanStd:
        """The success rate of the attack at the end: on the global model, else on the personal models."""
        return MeanStd.of([_success(run) for run in self.runs])

    def unseen(self, kind: str = "personal") -> MeanStd:
        """The mean over the clients that never took part, at the end."""
        return MeanStd.of([run.of_unseen(kind, self.metric.name) for run in self.runs])

    def curve(self, kind: str = "personal", over: str = "rounds") -> "Band | None":
        """The mean over seeds, for the rounds that all of them reached, over `rounds` or `times`."""
        series = self.series(kind)
        if not series:
            return None
        length = min(len(each.rounds) for each in series)
        means = np.array([each.mean[:length] for each in series])
        worst = np.array([each.worst[:length] for each in series]).mean(axis=0)
        x = np.array([getattr(each, over)[:length] for each in series], np.float64).mean(axis=0)
        return Band(x, means.mean(axis=0), means.min(axis=0), means.max(axis=0), worst)

    @property
    def target(self) -> float | None:
        """The value of the metric at which the runs stop, if they have one."""
        main = bool(self.runs) and self.metric.name == self.runs[0].main_metric.name
        return float(self.config.get("target", 0.0)) or None if main else None

    def rounds_to(self, target: float, kind: str = "personal") -> MeanStd:
        """Rounds until the mean over clients reaches `target` (`Metric.crossing`)."""
        return self.over_seeds(lambda series: series.to(target, series.rounds), kind)

    def seconds_to(self, target: float, kind: str = "personal") -> MeanStd:
        """Seconds of the run's clock until the mean over clients reaches `target`."""
        return self.over_seeds(lambda series: series.to(target, series.times), kind)

    def bytes_to(self, target: float, kind: str = "personal") -> MeanStd:
        """Bytes sent until the mean over clients reaches `target`."""
        return self.over_seeds(lambda series: series.to(target, series.traffic), kind)

    @property
    def baselines(self) -> list[Path]:
        """The folders of the runs that speed-ups are against."""
        return [run.folder.parent / run.planned.baseline for run in self.runs if run.planned.baseline]

    def cost(self, number: Callable[[Costs], float | None]) -> MeanStd:
        return MeanStd.of([number(run.costs) for run in self.runs])

    @cached_property
    def clients(self) -> dict[tuple[int, int], float]:
        """(seed, client) -> the metric of its personal model in the best round of the run, if it was measured."""
        found: dict[tuple[int, int], float] = {}
        for run in self.runs:
            series = run.series("personal", self.metric.name)
            if len(series.rounds):
                best = series.values[series.best_index]
                found |= {(int(run.config["seed"]), c): float(v) for c, v in zip(run.clients, best, strict=True)}
        return {key: value for key, value in found.items() if not np.isnan(value)}


def _mean_of(run: RunResult, malicious: bool, metric: str) -> float | None:
    series = run.series("personal", metric)
    group = np.array([(client in run.malicious) is malicious for client in run.clients])
    final = series.values[-1][group] if run.malicious and len(series.rounds) else np.zeros(0)
    known = final[~np.isnan(final)]
    return float(known.mean()) if known.size else None


def _success(run: RunResult) -> float | None:
    found = (run.series(kind, SUCCESS) for kind in ("global", "personal"))
    return next((float(series.mean[-1]) for series in found if len(series.rounds)), None)


@dataclass(frozen=True)
class Band:
    """A curve over seeds: the mean, the lowest and the highest seed, and the mean of the worst clients at each `x`."""

    x: Values
    mean: Values
    low: Values
    high: Values
    worst: Values


def worst_clients(series: Series) -> float | None:
    """The mean final value of the worst tenth of the clients, at least one; None if no client has a value."""
    final = np.sort(series.values[-1][~np.isnan(series.values[-1])])
    ordered = final if series.metric.higher_is_better else final[::-1]
    return float(ordered[: max(1, round(WORST_SHARE * len(ordered)))].mean()) if len(ordered) else None


def group_by_setting(
    runs: Sequence[RunResult], missing: Sequence[PlannedRun] = (), metric: Metric | None = None
) -> list[Setting]:
    """Settings in the order of their first run. `missing` are planned runs that do not exist; `metric` is the main
    metric of the runs unless given."""
    metric = choose_metric(runs) if metric is None else metric
    entries: dict[str, tuple[PlannedRun, list[RunResult], list[PlannedRun]]] = {}
    for planned, run in [*((run.planned, run) for run in runs), *((planned, None) for planned in missing)]:
        entry = entries.setdefault(repr(sorted(_keys(planned).items())), (planned, [], []))
        if run is None:
            entry[2].append(planned)
        else:
            entry[1].append(run)
    labels = _labels([first for first, _, _ in entries.values()])
    return [
        Setting(label, _keys(first), tuple(found), len(absent), _published(first, metric), first.source, metric)
        for label, (first, found, absent) in zip(labels, entries.values(), strict=True)
    ]


def _published(planned: PlannedRun, metric: Metric) -> dict[str, MeanStd]:
    """Published numbers are accuracies."""
    numbers = planned.published if metric == ACCURACY else {}
    return {kind: MeanStd.single(mean, std) for kind, (mean, std) in numbers.items()}


def _keys(planned: PlannedRun) -> dict[str, Any]:
    return {key: value for key, value in planned.config.items() if key.partition(".")[0] not in IGNORED}


def _labels(settings: Sequence[PlannedRun]) -> list[str]:
    """The cell of the sweep or the algorithm, followed by the keys in which settings of this name differ."""
    heads = [planned.title or str(planned.config["algorithm"]) for planned in settings]
    labels = []
    for head, planned in zip(heads, settings, strict=True):
        own = _keys(planned)
        same = [_keys(other) for name, other in zip(heads, settings, strict=True) if name == head]
        varying = [key for key in own if len({repr(keys.get(key)) for keys in same}) > 1]
        rest = [str(own[key]) if key in VALUE_ONLY else f"{key}={own[key]}" for key in sorted(varying, key=_order)]
        labels.append(", ".join([head, *rest]))
    return labels


def _order(key: str) -> int:
    return VALUE_ONLY.index(key) if key in VALUE_ONLY else len(VALUE_ONLY)
