"""Jobs on fedsim's own grids: they go to the clients as they are, without messages, encoding or copies."""

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol, runtime_checkable

from fedsim.client.groups import group_size
from fedsim.client.jobs import Order
from fedsim.errors import WireError
from fedsim.filters import Filter, filtered_on_server
from fedsim.payload import Answer, Failure, Job, Role, RunIdentity, Spec
from fedsim.transport import wire


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
        self,
        grid: JobGrid,
        run: RunIdentity,
        classes: int,
        sleeps: bool = False,
        at_once: int = 1,
        averages: bool = False,
    ) -> None:
        """`at_once`: so many clients may be trained at once. `averages`: the results of all jobs that are sent together
        go into one update, which needs only means of them."""
        self._grid, self.run, self._classes, self._sleeps = grid, run, classes, sleeps
        self._at_once, self._averages = 1 if sleeps else at_once, averages
        self.expects: Mapping[str, Spec] = {}
        self.filters: Sequence[Filter] = ()
        self.roles: Mapping[str, Role] = {}  # that clients are told, see `filters.sent_roles`
        self.on_poll: Callable[[], bool] = lambda: False  # as of `Messenger`; never called: these grids can wait
        self.on_communication: Callable[[float], None] = lambda seconds: None  # told the seconds of sending

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        """Sends jobs; none is refused."""
        began = time.perf_counter()
        orders = [Order(job, self._classes, self.roles, self._sleeps, self._at_once, self._averages) for job in jobs]
        train, evaluate = ([o for o in orders if o.job.train is kind] for kind in (True, False))
        size = group_size(len(train), self._at_once, self._averages)
        groups = [train[start : start + size] for start in range(0, len(train), size)]
        self._grid.send_groups([*groups, *([order] for order in evaluate)])
        self.on_communication(time.perf_counter() - began)
        return []

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        """Waits for at least one result, at most `timeout` seconds; a result that does not fit is a failure."""
        results = self._grid.receive_results(inf if timeout is None else timeout)
        return [filtered_on_server(self.filters, self._checked(result), self.expects) for result in results]

    def _checked(self, result: Answer | Failure) -> Answer | Failure:
        if isinstance(result, Failure) or result.uplink is None or result.uplink.averaged == 0:
            return result
        try:
            wire.check_uplink(result.uplink, self.expects)
        except WireError as problem:
            return Failure(result.job, f"its result was refused: {problem}")
        return result
