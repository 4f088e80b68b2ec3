"""Two runs side by side: settings that differ, metrics, the difference of every client, and costs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from fedsim.report.runs import RunResult, choose_metric
from fedsim.report.statistics import signed_rank
from fedsim.results.curves import KINDS
from fedsim.results.metric import Metric
from fedsim.results.record import COSTS

ELSEWHERE = ("out", "resume", "any-version", "log-format", "metrics")  # keys that say nothing about what a run is
DATA = ("dataset", "partition", "clients", "seed", "public", "validation")  # and sections: what decides who holds what
SECTIONS = ("partition", "data", "public")
EVERY = 30  # clients that are printed one by one


def compare(a: RunResult, b: RunResult, kind: str = "personal", metric: str | None = None) -> "Comparison":
    """Raises ConfigError for an unknown metric, or for runs of different objectives."""
    return Comparison((a, b), kind, choose_metric([a, b], metric))


@dataclass(frozen=True)
class Comparison:
    runs: tuple[RunResult, RunResult]
    kind: str
    metric: Metric

    @cached_property
    def names(self) -> tuple[str, str]:
        one, two = (run.folder.name for run in self.runs)
        return (one, two) if one != two else (str(self.runs[0].folder), str(self.runs[1].folder))

    @cached_property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """The keys with different values; None where a run does not have the key."""
        a, b = (run.config for run in self.runs)
        keys = [key for key in {**a, **b} if key not in ELSEWHERE and a.get(key) != b.get(key)]
        return {key: (a.get(key), b.get(key)) for key in keys}

    @cached_property
    def metrics(self) -> dict[tuple[str, str], tuple[float | None, float | None]]:
        """(metric, kind of model) -> the last mean over clients of each run."""
        names = dict.fromkeys(name for run in self.runs for name in run.metrics)
        pairs = {
            (name, kind): (self._final(0, kind, name), self._final(1, kind, name)) for name in names for kind in KINDS
        }
        return {key: pair for key, pair in pairs.items() if pair != (None, None)}

    def _final(self, place: int, kind: str, name: str) -> float | None:
        run = self.runs[place]
        series = run.series(kind, name) if name in run.metrics else None
        return float(series.mean[-1]) if series is not None and len(series.mean) else None

    @cached_property
    def same_data(self) -> bool:
        """Whether client i holds the same samples in both runs."""
        return not any(key in DATA or key.partition(".")[0] in SECTIONS for key in self.settings)

    @cached_property
    def clients(self) -> dict[int, tuple[float, float]]:
        """The last values of the clients that both runs measured."""
        found = []
        for run in self.runs:
            values = run.series(self.kind, self.metric.name).values
            last = values[-1] if len(values) else np.full(len(run.clients), np.nan)
            found.append(dict(zip(run.clients, last.tolist(), strict=True)))
        both = [client for client in found[0] if client in found[1]]
        pairs = {client: (found[0][client], found[1][client]) for client in both}
        return {client: pair for client, pair in pairs.items() if np.isfinite(pair).all()}

    @cached_property
    def p(self) -> float | None:
        """Of Wilcoxon's signed-rank test over the clients; None if they hold different data or none was measured."""
        if not (self.same_data and self.clients):
            return None
        one, two = zip(*self.clients.values(), strict=True)
        return signed_rank(one, two)

    @property
    def verdict(self) -> str:
        if self.p is None:
            return "no test: " + ("the clients hold different data" if self.clients else "no client was measured twice")
        sign = 1 if self.metric.higher_is_better else -1
        gains = [sign * (two - one) for one, two in self.clients.values()]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        name, other = self.names[1], self.names[0]
        return (
            f"{self.metric.name}, {self.kind} models: {name} is better than {other} for {better} clients, worse for "
            f"{worse}, equal for {len(gains) - better - worse}; p = {self.p:.2g} (Wilcoxon's signed-rank test)"
        )

    @cached_property
    def costs(self) -> dict[str, tuple[float | None, float | None]]:
        def costs(run: RunResult) -> dict[str, float | None]:
            found = run.costs
            memory = {"client MB": max(found.client_memory.values(), default=None), "server MB": found.server_memory}
            seconds = {f"{name} s": found.seconds[name] for name in COSTS}
            return {"wall s": found.wall, **seconds, "MB sent": found.traffic / 1e6, **memory}

        a, b = map(costs, self.runs)
        return {name: (a[name], b[name]) for name in a}

    def tables(self) -> list[Table]:
        settings = _table("settings that differ", "key", *self.names)
        for key, values in self.settings.items():
            settings.add_row(key, *("" if value is None else escape(str(value)) for value in values))
        metrics = _table("final mean over clients", "", *self.names, "difference")
        for (name, kind), (one, two) in self.metrics.items():
            metric = Metric(name)
            texts = ["-" if value is None else metric.text(value) for value in (one, two)]
            metrics.add_row(f"{name}, {kind}", *texts, _difference(metric, one, two))
        clients = _table(f"{self.metric.name} of each client, {self.kind} models", "client", *self.names, "difference")
        order = sorted(self.clients.items(), key=lambda item: item[1][1] - item[1][0])
        few = len(order) <= EVERY
        for client, (one, two) in sorted(order) if few else [*order[: EVERY // 2], *order[-EVERY // 2 :]]:
            clients.add_row(
                str(client), self.metric.text(one), self.metric.text(two), _difference(self.metric, one, two)
            )
        if not few:
            clients.caption = f"of {len(order)} clients, those with the lowest and the highest difference"
        costs = _table("costs", "", *self.names, "factor")
        for name, (one, two) in self.costs.items():
            factor = f"{two / one:.2f}" if one and two is not None else ""
            costs.add_row(name, *("-" if value is None else f"{value:.1f}" for value in (one, two)), factor)
        return [table for table in (settings, metrics, clients, costs) if table.row_count]

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": [str(run.folder) for run in self.runs],
            "settings": self.settings,
            "metrics": {f"{name}/{kind}": pair for (name, kind), pair in self.metrics.items()},
            "metric": self.metric.name,
            "kind": self.kind,
            "clients": self.clients,
            "same_data": self.same_data,
            "p": self.p,
            "costs": self.costs,
        }

    def figure(self, path: Path) -> None:
        """Left: the mean over clients, by round. Right: the difference of every client at the end, in order."""
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        curves, bars = figure.subplots(1, 2)
        for run, name, color in zip(self.runs, self.names, ("#0072B2", "#D55E00"), strict=True):
            series = run.series(self.kind, self.metric.name)
            curves.plot(series.rounds, series.mean, color=color, linewidth=2.2, label=name)
        label = f"{self.metric.name} on own test data, {self.kind} models"
        curves.set(xlabel="server step", ylabel=label, title="mean over clients")
        curves.legend()
        gaps = sorted((two - one, client) for client, (one, two) in self.clients.items())
        better = [(gap > 0) == self.metric.higher_is_better for gap, _ in gaps]
        bars.bar(range(len(gaps)), [gap for gap, _ in gaps], color=["#D55E00" if b else "#0072B2" for b in better])
        if len(gaps) <= EVERY:
            bars.set_xticks(range(len(gaps)), [str(client) for _, client in gaps])
        bars.axhline(0, color="#000000", linewidth=0.8)
        p = "" if self.p is None else f", p = {self.p:.2g}"
        bars.set(xlabel="client", ylabel=f"{self.names[1]} minus {self.names[0]}", title=f"each client at the end{p}")
        for axes in (curves, bars):
            axes.grid(alpha=0.3)
        figure.savefig(path, dpi=130)


def _table(title: str, first: str, *further: str) -> Table:
    table = Table(title=escape(title))
    table.add_column(first)
    for column in further:
        table.add_column(escape(column), justify="right")
    return table


def _difference(metric: Metric, one: float | None, two: float | None) -> str:
    if one is None or two is None:
        return ""
    return f"{metric.scale * (two - one):+.1f}" if metric.percent else f"{two - one:+.4g}"
