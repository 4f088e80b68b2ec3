"""events.jsonl in a run folder: what happened, one JSON line per event, each with a checksum of its own.

A checkpoint relies on the events before it, so these are brought to the disk first, and it knows how many lines they are.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedsim.files import naming, sealed, sync, unsealed, write_text

EVENTS = "events.jsonl"
Event = dict[str, Any]
log = logging.getLogger(__name__)


class Line(NamedTuple):
    """One line of the file."""

    text: str  # with the end of the line, if it has one
    event: Event | None  # None: it is damaged, or cut off


class EventLog:
    """The events of a run, in the file in its folder; without a folder they are only counted."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / EVENTS
        self.lines = 0

    def append(self, event: Mapping[str, Any]) -> None:
        """Raises StorageError if the line does not fit on the disk."""
        if self._path is not None:
            with naming(self._path), self._path.open("a") as file:
                file.write(sealed(event) + "\n")
        self.lines += 1

    def sync(self) -> None:
        """Waits until the disk has every event."""
        if self._path is not None and self.lines:
            sync([self._path])

    # Before a run is resumed

    @cached_property
    def _before(self) -> list[Line]:
        return [] if self._path is None else _read(self._path)

    def is_complete(self, lines: int) -> bool:
        """Whether the first so many lines are all there and not damaged."""
        return len(self._before) >= lines and all(line.event is not None for line in self._before[:lines])

    def rewind(self, done: int, lines: int) -> list[Event]:
        """Drops what came after the checkpoint of round `done`, which was written after so many lines; returns the events
        before it. Damaged lines before it are left out, and said so."""
        if self._path is None:
            return []
        kept = self._before[:lines]
        if not self.is_complete(lines):
            kept = [line for line in self._before if line.event is not None and _is_before(line.event, done)]
            steps = {line.event["round"] for line in kept if line.event is not None and line.event["kind"] == "step"}
            lost = [str(number) for number in range(1, done + 1) if number not in steps]
            about = f": round {', '.join(lost)} is missing in its curves" if lost else ""
            log.warning("%s was damaged before the checkpoint of round %d%s", self._path, done, about)
        write_text(self._path, "".join(line.text for line in kept))
        del self._before
        self.lines = len(kept)
        return [line.event for line in kept if line.event is not None]


def read_events(folder: Path) -> list[Event]:
    """The events of a run. A last line cut off by a crash is left out, and so are damaged lines, which are named."""
    found = _read(folder / EVENTS)
    for number, line in enumerate(found, start=1):
        if line.event is None and line.text.endswith("\n"):
            log.warning("%s: line %d is damaged and left out", folder / EVENTS, number)
    return [line.event for line in found if line.event is not None]


def parsed(text: str) -> Event | None:
    """The event in a line, or None if the line is damaged or cut off."""
    try:
        event = unsealed(text)
        valid = isinstance(event["round"], int) and isinstance(event["kind"], str) and text.endswith("\n")
    except (ValueError, KeyError, RecursionError):
        return None
    return event if valid else None


def _read(path: Path) -> list[Line]:
    texts = path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []
    return [Line(text, parsed(text)) for text in texts]


def _is_before(event: Event, done: int) -> bool:
    """Whether an event happened before the checkpoint of round `done`."""
    return bool(event["round"] < done or (event["kind"], event["round"]) == ("step", done))
