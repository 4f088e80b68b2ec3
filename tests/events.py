"""The events of a run without the values that depend on the machine: seconds and memory."""

from pathlib import Path
from typing import Any

from fedsim.results.record import read_events

MEASURED = ("seconds", "cost")


def reproducible_events(folder: Path) -> list[dict[str, Any]]:
    """Every event of a run folder, to be compared with those of another run of the same configuration."""
    return [_without_measurements(event) for event in read_events(folder)]


def _without_measurements(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_measurements(inner) for key, inner in value.items() if key not in MEASURED}
    return [_without_measurements(inner) for inner in value] if isinstance(value, list) else value
