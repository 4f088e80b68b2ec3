"""A finished or running run, read back from its folder."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError, unknown
from fedsim.payload import TRAINING
from fedsim.results.metric import Metric, Values, read_metrics
from fedsim.results.record import COSTS, read_events, read_manifest
from fedsim.sweeps.manifest import PlannedRun, read_sweep_manifest

CLASSIFICATION = "classification"  # the objective of runs whose manifest names none


@dataclass(frozen=True)
class Series:
    """One metric of one kind of model: a row per evaluated round, a column per client. A client that was not evaluated
    in a round keeps its previous value; NaN means that it has not been evaluated yet."""

    metric: Metric
    rounds: NDArray[np.int64]
    times: Values  # virtual seconds, or real seconds with clock=wall
    traffic: Values  # bytes sent up and down until then
    values: Values
    weights: Values  # of the clients in the mean
    tested: NDArray[np.int64]  # per client, the round of its latest number; -1: it has none

    @cached_property
    def mean(self) -> Values:
        """The weighted mean over clients, per round."""
        known = ~np.isnan(self.values) * self.weights
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nansum(self.values * self.weights, axis=1) / known.sum(axis=1))

    @cached_property
    def worst(self) -> Values:
        """The value of the worst client, per round."""
        return self.metric.worst(self.values)

    @property
    def best_index(self) -> int:
        """The row with the best mean."""
        return self.metric.best_index(self.mean)

    @property
    def best(self) -> float:
        """The best mean over the rounds."""
        return float(self.mean[self.best_index])

    def to(self, target: float, axis: NDArray[Any]) -> float | None:
        """Where on `axis`, such as `times`, the mean over clients reaches the target; None if it does not."""
        return self.metric.crossing(self.mean, target, axis)


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
class Costs:
    """The computing time, memory and traffic of a run. Seconds of parallel workers add up; memory is in MB."""

    wall: float
    seconds: dict[str, float]  # by COSTS
    client_memory: dict[int, float]  # peak of each client
    server_memory: float | None
    gpu_memory: dict[int, float]
    traffic: float  # bytes up and down


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

        def kept(tree: dict[str, Any]) -> dict[str, Any]:
            lists = {key: tree[key] for key in ("clients", "wasted", "in_flight") if key in tree}
            return tree | {key: [row for row in rows if row["id"] in clients] for key, rows in lists.items()}

        return RunResult(self.folder, kept(self.manifest), [kept(event) for event in self.events])

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
        column = {client: place for place, client in enumerate(self.clients)}
        main = metric == self.main_metric.name
        moment, moments = (0.0, 0.0), []
        rounds, rows, row, tested = [], [], np.full(len(column), np.nan), np.full(len(column), -1, np.int64)
        for event in self.events:
            if event["kind"] == "step":
                moment = event["time"], event.get("bytes_up", 0) + event.get("bytes_down", 0)
            clients = [*event.get("clients", []), *event.get("wasted", [])]
            measured = {client["id"]: _value(client, kind, metric, main) for client in clients}
            found = {client: value for client, value in measured.items() if value is not None}
            if found:
                row = row.copy()
                row[[column[client] for client in found]] = list(found.values())
                tested[[column[client] for client in found]] = event["round"]
                rounds.append(event["round"])
                rows.append(row)
                moments.append(moment)
        when = np.array(moments, np.float64).reshape(len(rounds), 2)
        values = np.array(rows, np.float64).reshape(len(rows), len(column))
        weights = np.array([_weight(client, kind, metric) for client in self.manifest["clients"]])
        declared = self.metrics.get(metric, Metric(metric))
        return Series(declared, np.array(rounds, np.int64), when[:, 0], when[:, 1], values, weights, tested)

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
        found = {row["id"]: _value(row, kind, name, name == self.main_metric.name) for row in rows}
        weights = {
            c["id"]: _weight(c, kind, name) for c in self.manifest.get("unseen", []) if found.get(c["id"]) is not None
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
        recorded = [event["cost"] for event in self.events if "cost" in event]
        seconds = {name: sum(cost.get(name, 0.0) for cost in recorded) for name in COSTS}
        peaks: dict[str, dict[int, float]] = {"memory": {}, "gpu-memory": {}}
        for event in self.events:
            for row in event.get("clients", []):
                for name, peak in peaks.items():
                    if (value := row.get("cost", {}).get(name)) is not None:
                        peak[row["id"]] = max(value, peak.get(row["id"], 0.0))
        server = max((cost["memory"] for cost in recorded if "memory" in cost), default=None)
        wall = max((event.get("seconds", 0.0) for event in self.events), default=0.0)
        traffic = max((e["bytes_up"] + e["bytes_down"] for e in self.events if "bytes_up" in e), default=0)
        return Costs(wall, seconds, peaks["memory"], server, peaks["gpu-memory"], traffic)


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


def _weight(client: dict[str, Any], kind: str, metric: str) -> float:
    """Of a client of the manifest in a mean: the global model is measured on the pooled data of all clients, so its mean is
    over samples, not over clients."""
    return float(client["train" if metric.startswith(TRAINING) else "test"]) if kind == "global" else 1.0


def _value(row: dict[str, Any], kind: str, metric: str, main: bool) -> float | None:
    """The metric in an event's row of a client. Older versions wrote only the main metric, under its kind."""
    value: float | None = row.get("metrics", {}).get(kind, {}).get(metric)
    return row.get(kind) if value is None and main else value
