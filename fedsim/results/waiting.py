"""What is going on while the user waits: a moving line on a terminal, a plain one in a log, nothing if it is short."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

AFTER = 1.0  # seconds
_waits: ContextVar[bool] = ContextVar("waits", default=False)


@contextmanager
def waiting(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows `title` on standard error once the block has taken a second; yields a function that is told how much of the
    total is done. Inside another block of this kind it shows nothing."""
    if _waits.get():
        yield lambda done, total: None
        return
    token, display = _waits.set(True), _Display(title)
    timer = threading.Timer(AFTER, display.show)
    timer.daemon = True
    timer.start()
    try:
        yield display.update
    finally:
        timer.cancel()
        display.end()
        _waits.reset(token)


class _Display:
    def __init__(self, title: str) -> None:
        self._title, self._lock, self._ended = title, threading.Lock(), False
        self._bar: Progress | None = None
        self._amount: tuple[int, int] | None = None

    def show(self) -> None:
        with self._lock:
            if self._ended:
                return
            if not sys.stderr.isatty():
                print(f"{self._title} ...", file=sys.stderr, flush=True)
                return
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            parts = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            amount = (BarColumn(), MofNCompleteColumn()) if self._amount else ()
            self._bar = Progress(*parts, *amount, console=Console(file=sys.stderr), transient=True)
            self._task = self._bar.add_task(self._title, total=None)
            self._bar.start()

    def update(self, done: int, total: int) -> None:
        self._amount = done, total
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
