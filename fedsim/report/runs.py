"""A run folder, read back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.record import read_events, read_manifest


@dataclass(frozen=True)
class Series:
    """One kind of accuracy: a row per evaluated round, a column per client; NaN where a client was not measured."""

    rounds: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over the clients, unweighted."""
        return np.asarray(np.nanmean(self.values, axis=1))

    @property
    def worst(self) -> NDArray[np.float64]:
        return np.asarray(np.nanmin(self.values, axis=1))


@dataclass(frozen=True)
class Run:
    """What a run was asked to do and what happened."""

    folder: Path
    manifest: dict[str, Any]
    events: list[dict[str, Any]]

    @classmethod
    def load(cls, folder: Path) -> "Run":
        return cls(folder, read_manifest(folder), read_events(folder))

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def name(self) -> str:
        return str(self.config["algorithm"])

    def series(self, kind: str) -> Series:
        """`global`, `personal` or `local`, as far as it was measured."""
        place = {client["id"]: i for i, client in enumerate(self.manifest["clients"])}
        rounds, rows = [], []
        for event in self.events:
            found = {row["id"]: row[kind] for row in event["clients"] if row.get(kind) is not None}
            if found:
                row = np.full(len(place), np.nan)
                row[[place[c] for c in found]] = list(found.values())
                rounds.append(event["round"])
                rows.append(row)
        return Series(np.array(rounds, np.int64), np.array(rows, np.float64).reshape(len(rows), len(place)))
