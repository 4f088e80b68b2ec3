"""A finished or running run, read back from its folder."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.errors import ConfigError, unknown
from fedsim.report.accumulate import Costs, GrowingCosts, GrowingSeries, Series, value, weight
from fedsim.results.metric import Metric, Values, read_metrics
from fedsim.results.record import read_events, read_manifest
from fedsim.sweeps.manifest import PlannedRun, read_sweep_manifest

CLASSIFICATION = "classification"  # the objective of runs whose manifest names none


@dataclass(frozen=True)
class TrainingJob:
    """One training job of a client: when it was sent and answered, and how stale its result was when it was used."""

    client: int
    base: int  # the server step whose model it started from
    sent: float
    arrived: float
    staleness: int | None  # None: the result was not used
    reason: str = ""  # why it was not used


@dataclass(frozen=True)
class RunResult:
    """The manifest and the events of a run, and what follows from them."""

    folder: Path
    manifest: dict[str, Any]
    events: list[dict[str, Any]]
    _series: dict[tuple[str, str], Series] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: Path) -> "RunResult":
        return cls(folder, read_manifest(folder), read_events(folder))

    def only(self, clients: Collection[int]) -> "RunResult":
        """The same run as if it had no other clients."""
        events = [without_others(event, clients) for event in self.events]
        return RunResult(self.folder, without_others(self.manifest, clients), events)

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.manifest["config"]
        return config

    @cached_property
    def objective(self) -> str:
        return str(self.manifest.get("objective", {}).get("name", CLASSIFICATION))

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """By name; the first one is the main metric."""
        return read_metrics(self.manifest)

    @property
    def main_metric(self) -> Metric:
        return next(iter(self.metrics.values()))

    @cached_property
    def planned(self) -> PlannedRun:
        """The entry of this run in the manifest of its sweep; a plain one if it belongs to no sweep."""
        found = read_sweep_manifest(self.folder.parent).runs.get(self.folder.name)
        return found if found is not None and found.config == self.config else PlannedRun(self.config)

    @cached_property
    def clients(self) -> list[int]:
        return [client["id"] for client in self.manifest["clients"]]

    @cached_property
    def malicious(self) -> frozenset[int]:
        """The clients that attacked at least once."""
        return frozenset(self.manifest.get("malicious", ()))

    @cached_property
    def models(self) -> dict[str, list[int]]:
        """The models of the clients by name -> the columns of the clients that have it."""
        found: dict[str, list[int]] = {}
        for column, client in enumerate(self.manifest["clients"]):
            found.setdefault(str(client.get("model", self.config.get("model"))), []).append(column)
        return found

    def parameters(self, model: str) -> int | None:
        """How many parameters a model has; None in runs of versions that did not record it."""
        tensors = self.manifest.get("layouts", {}).get(model, {}).get("parameters")
        return None if tensors is None else sum(prod(shape) for _, shape, *_ in tensors)

    @cached_property
    def steps(self) -> Values:
        """The times of the server steps."""
        return np.array([event["time"] for event in self.events if event["kind"] == "step"], np.float64)

    def series(self, kind: str, metric: str | None = None) -> Series:
        """The values of `metric` (default: the main metric) of the `global`, `personal` or `local` models. It has no
        rounds if they were not measured."""
        name = metric or self.main_metric.name
        if (kind, name) not in self._series:
            self._series[kind, name] = self._read_series(kind, name)
        return self._series[kind, name]

    def _read_series(self, kind: str, metric: str) -> Series:
        growing = GrowingSeries(
            self.manifest, kind, self.metrics.get(metric, Metric(metric)), metric == self.main_metric.name
        )
        for event in self.events:
            growing.add(event)
        return growing.series()

    def outdated(self, kind: str = "personal", metric: str | None = None) -> dict[int, int]:
        """Clients whose latest number is older than the last evaluation -> the round of that number."""
        series = self.series(kind, metric)
        last = series.rounds[-1] if len(series.rounds) else 0
        pairs = zip(self.clients, series.tested.tolist(), strict=True)
        return {client: number for client, number in pairs if 0 <= number < last}

    @cached_property
    def unseen(self) -> list[int]:
        """The clients that never took part."""
        return [client["id"] for client in self.manifest.get("unseen", [])]

    def of_unseen(self, kind: str, metric: str | None = None) -> float | None:
        """The mean of a metric over the clients that never took part, at the end; None if it was not measured."""
        name = metric or self.main_metric.name
        rows: list[dict[str, Any]] = next(
            (event["unseen"] for event in reversed(self.events) if event["kind"] == "unseen"), []
        )
        found = {row["id"]: value(row, kind, name, name == self.main_metric.name) for row in rows}
        weights = {
            c["id"]: weight(c, kind, name) for c in self.manifest.get("unseen", []) if found.get(c["id"]) is not None
        }
        total = sum(weights.values())
        return sum(weights[c] * (found[c] or 0.0) for c in weights) / total if total else None

    @cached_property
    def results(self) -> list[tuple[int, dict[str, Any]]]:
        """Every result that a step used, as recorded: the number of the step, and the row."""
        return [(event["round"], row) for event in self.events if event["kind"] == "step" for row in event["clients"]]

    @cached_property
    def jobs(self) -> list[TrainingJob]:
        """Every training job that ended, and those that were still running when the run ended."""
        end = float(self.steps[-1]) if len(self.steps) else 0.0

        def job(row: dict[str, Any]) -> TrainingJob:
            arrived, reason = row.get("arrived", end), row.get("reason", "" if "arrived" in row else "the run ended")
            return TrainingJob(row["id"], row["base"], row["sent"], arrived, row.get("staleness"), reason)

        steps = [event for event in self.events if event["kind"] != "evaluation"]
        return [
            job(row) for event in steps for part in ("clients", "wasted", "in_flight") for row in event.get(part, [])
        ]

    @cached_property
    def clusters(self) -> dict[int, list[int]]:
        """Round -> the cluster of every client (-1: not known), for every round after which a client changed its own."""
        return {event["round"]: event["clusters"] for event in self.events if "clusters" in event}

    @cached_property
    def idle(self) -> list[float]:
        """For each client, the share of the run in which it had no training job."""
        length = float(self.steps[-1]) if len(self.steps) else 0.0
        busy = dict.fromkeys(self.clients, 0.0)
        for job in self.jobs:
            busy[job.client] += min(job.arrived, length) - min(job.sent, length)
        return [1 - busy[client] / length if length else 0.0 for client in self.clients]

    @cached_property
    def costs(self) -> Costs:
        growing = GrowingCosts()
        for event in self.events:
            growing.add(event)
        return growing.costs()


def without_others(tree: dict[str, Any], clients: Collection[int]) -> dict[str, Any]:
    """A manifest or an event with the rows of these clients alone."""
    lists = {key: tree[key] for key in ("clients", "wasted", "in_flight") if key in tree}
    return tree | {key: [row for row in rows if row["id"] in clients] for key, rows in lists.items()}


def choose_metric(runs: Sequence[RunResult], name: str | None = None) -> Metric:
    """The metric of this name, or the main metric of the runs. Raises ConfigError if the runs have different objectives
    or none of them measured it."""
    objectives = {run.objective: run for run in reversed(runs)}
    if len(objectives) > 1:
        found = "; ".join(f"{objective} ({run.folder})" for objective, run in reversed(objectives.items()))
        raise ConfigError(
            f"runs with different objectives cannot be compared: {found}. Report each objective by itself"
        )
    known = {metric.name: metric for run in reversed(runs) for metric in run.metrics.values()}
    if name is not None and name not in known:
        unknown("metric", name, known)
    return runs[0].main_metric if name is None else known[name]


def display_names(runs: Sequence[RunResult]) -> list[str]:
    """A name for each run: its algorithm if all algorithms differ, else its folder."""
    names = [str(run.config["algorithm"]) for run in runs]
    return names if len(set(names)) == len(names) else [run.folder.name for run in runs]
