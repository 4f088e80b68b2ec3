"""Events of a run without what depends on the machine: seconds, memory."""

from pathlib import Path
from typing import Any

from fedsim.record import read_events


def what_happened(folder: Path) -> list[dict[str, Any]]:
    return [_bare(event) for event in read_events(folder)]


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items() if key not in ("seconds", "cost")}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value
