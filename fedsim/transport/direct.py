"""Jobs on fedsim's own grids: they go to the clients as they are, without messages, encoding or copies."""

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol, runtime_checkable

from fedsim import registry
from fedsim.client.jobs import Order
from fedsim.config import RunConfig
from fedsim.errors import WireError
from fedsim.filters import Filter, filtered_on_server
from fedsim.layout import Layout
from fedsim.payload import Answer, Failure, Job, Role, RunIdentity, Spec
from fedsim.transport import wire

AUTO, SMALL = 32, 1_000_000  # clients trained at once, and the most parameters for which that pays
VECTORIZED_FROM = 64  # jobs that are sent together; fewer are done one by one, bit for bit as ever


@runtime_checkable
class JobGrid(Protocol):
    """A grid that runs jobs itself. Every order gets a result; the grid keeps the time limit of a job."""

    def send_groups(self, groups: Sequence[Sequence[Order]]) -> None:
        """Queues jobs; those of a group are given to one worker, which may train their models at once."""

    def receive_results(self, timeout: float) -> list[Answer | Failure]:
        """Waits for at least one result, at most `timeout` seconds; returns all that are there."""


class DirectMessenger:
    """Sends jobs to a `JobGrid` and checks what comes back, as `Messenger` does on other grids."""

    def __init__(
        self, grid: JobGrid, run: RunIdentity, classes: int, sleeps: bool = False, group_size: int = 1
    ) -> None:
        self._grid, self.run, self._classes, self._sleeps = grid, run, classes, sleeps
        self._group_size = 1 if sleeps else group_size
        self.expects: Mapping[str, Spec] = {}
        self.filters: Sequence[Filter] = ()
        self.roles: Mapping[str, Role] = {}  # that clients are told, see `filters.sent_roles`
        self.on_poll: Callable[[], bool] = lambda: False  # as of `Messenger`; never called: these grids can wait
        self.on_communication: Callable[[float], None] = lambda seconds: None  # told the seconds of sending

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        """Sends jobs; none is refused."""
        began = time.perf_counter()
        orders = [Order(job, self._classes, self.roles, self._sleeps) for job in jobs]
        train, evaluate = ([o for o in orders if o.job.train is kind] for kind in (True, False))
        size = self._group_size if len(train) >= VECTORIZED_FROM else 1
        groups = [train[start : start + size] for start in range(0, len(train), size)]
        self._grid.send_groups([*groups, *([order] for order in evaluate)])
        self.on_communication(time.perf_counter() - began)
        return []

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Waits for at least one result, at most `timeout` seconds; a result that does not fit is a failure."""
        results = self._grid.receive_results(inf if timeout is None else timeout)
        return [filtered_on_server(self.filters, self._checked(result), self.expects) for result in results]

    def _checked(self, result: Answer | Failure) -> Answer | Failure:
        if isinstance(result, Failure) or result.uplink is None:
            return result
        try:
            wire.check_uplink(result.uplink, self.expects)
        except WireError as problem:
            return Failure(result.job, f"its result was refused: {problem}")
        return result


def group_size(config: RunConfig, layout: Layout) -> int:
    """How many clients are trained at once: `vectorize`, or with `auto` 32 for algorithms that allow it and dense models."""
    if config.vectorize == "off" or not registry.find("algorithm", config.algorithm).vectorizes:
        return 1
    if config.vectorize != "auto":
        return int(config.vectorize)
    dense = not layout.buffers and all(len(tensor.shape) <= 2 for tensor in layout.parameters)
    return AUTO if dense and config.optimizer == "sgd" and layout.size <= SMALL else 1
