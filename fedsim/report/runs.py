"""A run folder, read back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.record import read_events, read_manifest


@dataclass(frozen=True)
class Series:
    """One kind of accuracy: a row per evaluated round, a column per client. A client that was busy or not asked keeps the
    number it had; NaN: it was never measured so far."""

    rounds: NDArray[np.int64]
    times: NDArray[np.float64]  # on the run's own clock
    values: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over the clients, unweighted."""
        return np.asarray(np.nanmean(self.values, axis=1))

    @property
    def worst(self) -> NDArray[np.float64]:
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

    @property
    def clients(self) -> list[int]:
        return [client["id"] for client in self.manifest["clients"]]

    @property
    def steps(self) -> NDArray[np.float64]:
        """When the server stepped."""
        return np.array([event["time"] for event in self.events if event["kind"] == "step"], np.float64)

    def series(self, kind: str) -> Series:
        """`global`, `personal` or `local`, as far as it was measured."""
        if kind not in self._known:
            self._known[kind] = self._read_series(kind)
        return self._known[kind]

    def _read_series(self, kind: str) -> Series:
        place = {client: column for column, client in enumerate(self.clients)}
        when = {0: 0.0} | {event["round"]: event["time"] for event in self.events if event["kind"] == "step"}
        rounds, rows, row = [], [], np.full(len(place), np.nan)
        for event in self.events:
            found = {r["id"]: r[kind] for r in _rows(event) if r.get(kind) is not None}
            if found:
                row = row.copy()
                row[[place[c] for c in found]] = list(found.values())
                rounds.append(event["round"])
                rows.append(row)
        times = np.array([when[number] for number in rounds], np.float64)
        return Series(np.array(rounds, np.int64), times, np.array(rows, np.float64).reshape(len(rows), len(place)))

    def work(self) -> list[Work]:
        """Every training job that ended, and those that were out when the run ended."""
        end = float(self.steps[-1]) if len(self.steps) else 0.0

        def job(row: dict[str, Any]) -> Work:
            arrived, reason = row.get("arrived", end), row.get("reason", "" if "arrived" in row else "the run ended")
            return Work(row["id"], row["base"], row["sent"], arrived, row.get("staleness"), reason)

        steps = [event for event in self.events if event["kind"] != "evaluation"]
        return [
            job(row) for event in steps for part in ("clients", "wasted", "in_flight") for row in event.get(part, [])
        ]


def labels(runs: Sequence[Run]) -> list[str]:
    """What to call runs side by side: the algorithm if that tells them apart, else the folder."""
    names = [str(run.config["algorithm"]) for run in runs]
    return names if len(set(names)) == len(names) else [run.folder.name for run in runs]


def _rows(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [*event.get("clients", []), *event.get("wasted", [])]
