"""A run folder, read back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.plan import Planned, plan_of
from fedsim.record import COSTS, read_events, read_manifest

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One kind of accuracy: a row per evaluated round, a column per client. A client that was busy or not asked keeps the
    number it had; NaN: it was never measured so far."""

    rounds: NDArray[np.int64]
    times: Values  # on the run's own clock
    traffic: Values  # bytes sent up and down until then
    values: Values
    weights: Values  # of the clients in the mean

    @cached_property
    def mean(self) -> Values:
        known = ~np.isnan(self.values) * self.weights
        return np.asarray(np.nansum(self.values * self.weights, axis=1) / known.sum(axis=1))

    @cached_property
    def worst(self) -> Values:
        return np.asarray(np.nanmin(self.values, axis=1))


@dataclass(frozen=True)
class Work:
    """One training job: who worked when, from which step's model, and what became of it."""

    client: int
    base: int
    sent: float
    arrived: float
    staleness: int | None  # None: wasted
    reason: str = ""  # why it was wasted


@dataclass(frozen=True)
class Costs:
    """What a run took on the machine. Seconds of several workers add up; peaks of memory are in MB."""

    wall: float
    seconds: dict[str, float]  # by COSTS
    client_memory: dict[int, float]  # highest of each client
    server_memory: float | None
    gpu_memory: dict[int, float]
    traffic: float  # bytes up and down


@dataclass(frozen=True)
class Run:
    """What a run was asked to do and what happened."""

    folder: Path
    manifest: dict[str, Any]
    events: list[dict[str, Any]]
    _known: dict[str, Series] = field(default_factory=dict, repr=False, compare=False)  # series asked for before

    @classmethod
    def load(cls, folder: Path) -> "Run":
        return cls(folder, read_manifest(folder), read_events(folder))

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.manifest["config"]
        return config

    @cached_property
    def planned(self) -> Planned:
        """What the sweep it belongs to says about it."""
        found = plan_of(self.folder.parent).runs.get(self.folder.name)
        return found if found is not None and found.config == self.config else Planned(self.config)

    @cached_property
    def clients(self) -> list[int]:
        return [client["id"] for client in self.manifest["clients"]]

    @cached_property
    def steps(self) -> Values:
        """When the server stepped."""
        return np.array([event["time"] for event in self.events if event["kind"] == "step"], np.float64)

    def series(self, kind: str) -> Series:
        """`global`, `personal` or `local`, as far as it was measured."""
        if kind not in self._known:
            self._known[kind] = self._read_series(kind)
        return self._known[kind]

    def _read_series(self, kind: str) -> Series:
        place = {client: column for column, client in enumerate(self.clients)}
        moments = {0: (0.0, 0.0)}
        rounds, rows, row = [], [], np.full(len(place), np.nan)
        for event in self.events:
            if event["kind"] == "step":
                moments[event["round"]] = event["time"], event.get("bytes_up", 0) + event.get("bytes_down", 0)
            found = {r["id"]: r[kind] for r in _rows(event) if r.get(kind) is not None}
            if found:
                row = row.copy()
                row[[place[c] for c in found]] = list(found.values())
                rounds.append(event["round"])
                rows.append(row)
        when = np.array([moments[number] for number in rounds], np.float64).reshape(len(rounds), 2)
        values = np.array(rows, np.float64).reshape(len(rows), len(place))
        tests = [float(c["test"]) if kind == "global" else 1.0 for c in self.manifest["clients"]]  # it is tested on all
        return Series(np.array(rounds, np.int64), when[:, 0], when[:, 1], values, np.array(tests, np.float64))

    def work(self) -> list[Work]:
        """Every training job that ended, and those that were out when the run ended."""
        return self._work

    @cached_property
    def _work(self) -> list[Work]:
        end = float(self.steps[-1]) if len(self.steps) else 0.0

        def job(row: dict[str, Any]) -> Work:
            arrived, reason = row.get("arrived", end), row.get("reason", "" if "arrived" in row else "the run ended")
            return Work(row["id"], row["base"], row["sent"], arrived, row.get("staleness"), reason)

        steps = [event for event in self.events if event["kind"] != "evaluation"]
        return [
            job(row) for event in steps for part in ("clients", "wasted", "in_flight") for row in event.get(part, [])
        ]

    @cached_property
    def idle(self) -> list[float]:
        """For each client, the share of the run it did not work."""
        length = float(self.steps[-1]) if len(self.steps) else 0.0
        busy = dict.fromkeys(self.clients, 0.0)
        for job in self._work:
            busy[job.client] += min(job.arrived, length) - min(job.sent, length)
        return [1 - busy[client] / length if length else 0.0 for client in self.clients]

    @cached_property
    def costs(self) -> Costs:
        told = [event["cost"] for event in self.events if "cost" in event]
        seconds = {name: sum(cost.get(name, 0.0) for cost in told) for name in COSTS}
        peaks: dict[str, dict[int, float]] = {"memory": {}, "gpu-memory": {}}
        for event in self.events:
            for row in event.get("clients", []):
                for name, peak in peaks.items():
                    if (value := row.get("cost", {}).get(name)) is not None:
                        peak[row["id"]] = max(value, peak.get(row["id"], 0.0))
        server = max((cost["memory"] for cost in told if "memory" in cost), default=None)
        wall = max((event.get("seconds", 0.0) for event in self.events), default=0.0)
        traffic = max((e["bytes_up"] + e["bytes_down"] for e in self.events if "bytes_up" in e), default=0)
        return Costs(wall, seconds, peaks["memory"], server, peaks["gpu-memory"], traffic)


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call runs side by side: the algorithm if that tells them apart, else the folder."""
    names = [str(run.config["algorithm"]) for run in runs]
    return names if len(set(names)) == len(names) else [run.folder.name for run in runs]


def _rows(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [*event.get("clients", []), *event.get("wasted", [])]
