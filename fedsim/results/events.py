"""events.jsonl in a run folder: what happened, one JSON line per event, each with a checksum of its own.

A checkpoint relies on the events before it, so these are brought to the disk first, and it knows how many lines they are.
A copy beside the checkpoints takes the place of a damaged file.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedsim.files import make_folder, naming, sealed, sync, unsealed, write_text

EVENTS = "events.jsonl"
COPY = f"checkpoint/{EVENTS}"
Event = dict[str, Any]
log = logging.getLogger(__name__)


class Line(NamedTuple):
    """One line of the file."""

    text: str  # with the end of the line, if it has one
    event: Event | None  # None: it is damaged, or cut off


class EventLog:
    """The events of a run, in the file in its folder and in a copy of it; without a folder they are only counted."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._copied = 0  # bytes
        self.lines = 0

    def append(self, event: Mapping[str, Any]) -> None:
        """Raises StorageError if the line does not fit on the disk."""
        if self._folder is not None:
            with naming(path := self._folder / EVENTS), path.open("a") as file:
                file.write(sealed(event) + "\n")
        self.lines += 1

    def sync(self) -> None:
        """Waits until the disk has every event. The copy need not wait: it is for damage, and not for power failures."""
        if self._folder is not None and self.lines:
            sync([self._folder / EVENTS])
            make_folder((self._folder / COPY).parent)
            with naming(self._folder / COPY), (self._folder / EVENTS).open("rb") as file:
                file.seek(self._copied)
                with (self._folder / COPY).open("ab" if self._copied else "wb") as copy:
                    shutil.copyfileobj(file, copy)
                self._copied = file.tell()

    # Before a run is resumed

    @cached_property
    def _before(self) -> list[list[Line]]:
        """The file and its copy."""
        return [] if self._folder is None else [_read(self._folder / name) for name in (EVENTS, COPY)]

    def is_complete(self, lines: int) -> bool:
        """Whether the first so many events are all there, in the file or in its copy."""
        return any(_is_complete(found, lines) for found in self._before)

    def rewind(self, done: int, lines: int) -> list[Event]:
        """Drops what came after the checkpoint of round `done`, which was written after so many lines; returns the events
        before it. If the file is damaged, its copy is used, and if both are, damaged lines are left out; both is said."""
        if self._folder is None:
            return []
        path = self._folder / EVENTS
        if not _is_complete(self._before[0], lines):
            log.warning("%s was damaged before the checkpoint of round %d", path, done)
        kept = next((found[:lines] for found in self._before if _is_complete(found, lines)), None)
        if kept is None:
            kept = [line for line in self._before[0] if line.event is not None and _is_before(line.event, done)]
            steps = {line.event["round"] for line in kept if line.event is not None and line.event["kind"] == "step"}
            lost = [str(number) for number in range(1, done + 1) if number not in steps]
            log.warning("%s: its copy is damaged, too. Its curves lack round %s", path, ", ".join(lost) or "none")
        write_text(path, "".join(line.text for line in kept))
        del self._before
        self.lines = len(kept)
        self.sync()
        return [line.event for line in kept if line.event is not None]


def read_events(folder: Path) -> list[Event]:
    """The events of a run. A last line cut off by a crash is left out. If a line is damaged, the copy of the file is used
    if it is better, and else the line is left out; both is said."""
    path, found = folder / EVENTS, _read(folder / EVENTS)
    events = [line.event for line in found if line.event is not None]
    damaged = [n for n, line in enumerate(found, start=1) if line.event is None and line.text.endswith("\n")]
    if len(events) < len(found) or not found:
        copied = [line.event for line in _read(folder / COPY) if line.event is not None]
        if len(copied) > len(events):
            log.warning("%s is missing or damaged: its copy in %s is used", path, folder / COPY)
            return copied
    for number in damaged:
        log.warning("%s: line %d is damaged and left out", path, number)
    return events


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


def _is_complete(found: Sequence[Line], lines: int) -> bool:
    return len(found) >= lines and all(line.event is not None for line in found[:lines])


def _is_before(event: Event, done: int) -> bool:
    """Whether an event happened before the checkpoint of round `done`."""
    return bool(event["round"] < done or (event["kind"], event["round"]) == ("step", done))
