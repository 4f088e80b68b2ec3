"""Who follows a run while it happens: callbacks of the Python API, trackers, metrics for monitoring.

Observers receive the run's events as they are written to `events.jsonl`, in the process of the server.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.results.record import Record


class Observer:
    """Every method may stay as it is: it then does nothing."""

    def begin(self, record: "Record") -> None:
        """The run begins, or goes on: the clients, the metrics and the configuration are known."""

    def event(self, event: Mapping[str, Any]) -> bool:
        """An event was recorded. Returns whether the run should end with the step that follows."""
        return False

    def end(self, record: "Record", status: str) -> None:
        """The run is `finished`, `failed` or `interrupted`; a finished one has written its summary."""


_current: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observed_by(observers: Sequence[Observer]) -> Iterator[None]:
    """Runs that start inside, in this thread, have these observers."""
    token = _current.set((*_current.get(), *observers))
    try:
        yield
    finally:
        _current.reset(token)


def observers() -> tuple[Observer, ...]:
    return _current.get()
