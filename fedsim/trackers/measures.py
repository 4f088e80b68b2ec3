"""The numbers and tables that trackers get: their names, and how they follow from the events of a run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.results.curves import KINDS
from fedsim.results.metric import Metric

if TYPE_CHECKING:
    from fedsim.results.record import Record

# of every round: time, traffic, what came back, where the time went, and the memory of the server
OF_ROUNDS = (
    "virtual seconds",
    "seconds",
    "bytes/up",
    "bytes/down",
    "results/used",
    "results/wasted",
    "results/failed",
    "staleness/mean",
    "staleness/max",
)
OF_EVENTS = ("memory/server MB",)


def mean_of(metric: str, kind: str) -> str:
    """The name of a metric's mean over clients."""
    return f"{metric}/{kind}"


def worst_of(kind: str) -> str:
    """The name of the main metric's value of the worst client."""
    return f"worst client/{kind}"


def names(record: "Record") -> tuple[str, ...]:
    """The names that the numbers of a run may have."""
    means = [mean_of(metric, kind) for metric in record.metrics for kind in KINDS]
    return (*means, *map(worst_of, KINDS), *OF_ROUNDS, *OF_EVENTS)


def scalars(record: "Record", event: Mapping[str, Any]) -> dict[str, float]:
    """What an event tells that `record` has just taken into its curves."""
    found: dict[str, float] = {"memory/server MB": event["cost"]["memory"]}
    measured = {"evaluation": ("global", "personal"), "step": ("local",)}.get(event["kind"], ())
    for place, (metric, direction) in enumerate(record.metrics.items()):
        for kind in measured:
            curve = record.all_curves[metric][kind]
            if not curve.points or curve.points[-1][0] != event["round"]:
                continue
            found[mean_of(metric, kind)] = curve.points[-1][1]
            if place == 0:
                values = np.array([list(curve.latest.values())])
                found[worst_of(kind)] = float(Metric(metric, direction).worst(values)[0])
    if event["kind"] == "step":
        ages = [row["staleness"] for row in event["clients"]]
        of_round = (
            event["time"],
            event["seconds"],
            event["bytes_up"],
            event["bytes_down"],
            len(ages),
            len(event["wasted"]),
            len(event["failures"]),
            float(np.mean(ages)) if ages else 0.0,
            max(ages, default=0),
        )
        found |= dict(zip(OF_ROUNDS, of_round, strict=True))
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def columns(record: "Record") -> tuple[str, ...]:
    return ("client", *(mean_of(metric, kind) for metric in record.metrics for kind in KINDS))


def client_rows(record: "Record") -> list[dict[str, float | int | None]]:
    """Every client's latest values."""
    curves = {mean_of(m, kind): curve for m, found in record.all_curves.items() for kind, curve in found.items()}
    return [
        {"client": client.id, **{name: curve.latest.get(client.id) for name, curve in curves.items()}}
        for client in record.fleet.clients
    ]
