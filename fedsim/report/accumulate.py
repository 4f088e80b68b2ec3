"""What the events of a run add up to, one event after the other: of a run that is finished, or of one that is growing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.payload import TRAINING
from fedsim.results.metric import Metric, Values
from fedsim.results.record import COSTS

Event = Mapping[str, Any]


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


class GrowingSeries:
    """Makes a `Series` of the events that it is given; `main`: of the main metric, which older versions wrote alone."""

    def __init__(self, manifest: Mapping[str, Any], kind: str, metric: Metric, main: bool) -> None:
        self._kind, self._metric, self._main = kind, metric, main
        clients = manifest["clients"]
        self._column = {client["id"]: place for place, client in enumerate(clients)}
        self._weights = np.array([weight(client, kind, metric.name) for client in clients])
        self._moment, self._moments = (0.0, 0.0), list[tuple[float, float]]()
        self._rounds, self._rows = list[int](), list[Values]()
        self._row = np.full(len(clients), np.nan)
        self._tested = np.full(len(clients), -1, np.int64)

    def add(self, event: Event) -> None:
        if event["kind"] == "step":
            self._moment = event["time"], event.get("bytes_up", 0) + event.get("bytes_down", 0)
        rows = [*event.get("clients", []), *event.get("wasted", [])]
        measured = {row["id"]: value(row, self._kind, self._metric.name, self._main) for row in rows}
        found = {client: number for client, number in measured.items() if number is not None}
        if found:
            columns = [self._column[client] for client in found]
            self._row = self._row.copy()
            self._row[columns] = list(found.values())
            self._tested[columns] = event["round"]
            self._rounds.append(event["round"])
            self._rows.append(self._row)
            self._moments.append(self._moment)

    @property
    def latest(self) -> float | None:
        """The latest mean over clients; None if none was evaluated."""
        known = ~np.isnan(self._row)
        weights = self._weights[known]
        return float(np.average(self._row[known], weights=weights)) if weights.sum() else None

    def series(self) -> Series:
        """Of the events so far."""
        when = np.array(self._moments, np.float64).reshape(len(self._rounds), 2)
        values = np.array(self._rows, np.float64).reshape(len(self._rows), len(self._column))
        rounds, tested = np.array(self._rounds, np.int64), self._tested.copy()
        return Series(self._metric, rounds, when[:, 0], when[:, 1], values, self._weights, tested)


@dataclass(frozen=True)
class Costs:
    """The computing time, memory and traffic of a run. Seconds of parallel workers add up; memory is in MB."""

    wall: float
    seconds: dict[str, float]  # by COSTS
    client_memory: dict[int, float]  # peak of each client
    server_memory: float | None
    gpu_memory: dict[int, float]
    traffic: float  # bytes up and down


class GrowingCosts:
    """Makes `Costs` of the events that it is given."""

    def __init__(self) -> None:
        self._wall, self._traffic, self._server = 0.0, 0, list[float]()
        self._seconds = dict.fromkeys(COSTS, 0.0)
        self._peaks: dict[str, dict[int, float]] = {"memory": {}, "gpu-memory": {}}

    def add(self, event: Event) -> None:
        cost = event.get("cost", {})
        for name in COSTS:
            self._seconds[name] += cost.get(name, 0.0)
        if "memory" in cost:
            self._server = [max([cost["memory"], *self._server])]
        self._wall = max(self._wall, event.get("seconds", 0.0))
        if "bytes_up" in event:
            self._traffic = max(self._traffic, event["bytes_up"] + event["bytes_down"])
        for row in event.get("clients", []):
            for name, peak in self._peaks.items():
                if (measured := row.get("cost", {}).get(name)) is not None:
                    peak[row["id"]] = max(measured, peak.get(row["id"], 0.0))

    def costs(self) -> Costs:
        """Of the events so far."""
        server = self._server[0] if self._server else None
        peaks = self._peaks
        return Costs(
            self._wall, dict(self._seconds), dict(peaks["memory"]), server, dict(peaks["gpu-memory"]), self._traffic
        )


def weight(client: Mapping[str, Any], kind: str, metric: str) -> float:
    """Of a client of the manifest in a mean: the global model is measured on the pooled data of all clients, so its mean is
    over samples, not over clients."""
    return float(client["train" if metric.startswith(TRAINING) else "test"]) if kind == "global" else 1.0


def value(row: Mapping[str, Any], kind: str, metric: str, main: bool) -> float | None:
    """The metric in an event's row of a client. Older versions wrote only the main metric, under its kind."""
    found: float | None = row.get("metrics", {}).get(kind, {}).get(metric)
    return row.get(kind) if found is None and main else found
