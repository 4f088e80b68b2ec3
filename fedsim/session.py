"""One federated run on a grid: roll call, loop, checkpoints, summary. Every engine and every strategy goes through here."""

from typing import Any, Protocol, runtime_checkable

from flwr.serverapp import Grid

from fedsim import checkpoint as checkpoints
from fedsim import registry
from fedsim.checkpoint import Checkpoint
from fedsim.clock import Clock, VirtualClock, WallClock
from fedsim.config import RunConfig
from fedsim.courier import Courier
from fedsim.fleet import Fleet, roll_call
from fedsim.loop import Loop, Server
from fedsim.pace import Pace
from fedsim.payload import Memory
from fedsim.record import Record
from fedsim.vector import Vec, fingerprint


class Strategy(Server[Any], Protocol):
    """What a session asks of a strategy."""

    def enlist(self, fleet: Fleet) -> None: ...

    def init(self, theta: Vec, fleet: Fleet) -> Any: ...

    def expects(self) -> Any: ...

    def global_model(self, state: Any) -> Vec | None: ...


@runtime_checkable
class Simulated(Protocol):
    """A grid that holds its clients' memories, so that a checkpoint can hold them too."""

    def memories(self) -> dict[int, Memory]: ...

    def restore(self, memories: dict[int, Memory]) -> None: ...


def pace_of(config: RunConfig) -> Pace:
    name = registry.find("algorithm", config.algorithm).pace if config.pace == "auto" else config.pace
    pace: Pace = registry.find("pace", name)(config.params("pace"), config)
    return pace


def run(strategy: Strategy, grid: Grid, config: RunConfig, record: Record, theta: Vec | None = None) -> Any:
    """Runs `strategy` to the end and returns its final state; `theta` replaces the clients' initial model."""
    fleet = roll_call(grid, config)
    strategy.enlist(fleet)
    state = strategy.init(fleet.theta if theta is None else theta, fleet)
    here = Checkpoint(0, 0.0, 0, 0, state, {})
    if config.resume and record.folder is not None:
        here = checkpoints.newest(record.folder, type(state)) or here
        if isinstance(grid, Simulated):
            grid.restore(here.memories)
    courier = Courier(grid, {c.id: c.node for c in fleet.clients}, fleet.classes, config.timeout)
    courier.expects, courier.bytes_up, courier.bytes_down = strategy.expects(), here.bytes_up, here.bytes_down
    clock = _clock(courier, config, here.now)

    def memories() -> dict[int, Memory]:
        return grid.memories() if isinstance(grid, Simulated) else {}

    def save(step: int, state: Any) -> None:
        if record.folder is not None:
            point = Checkpoint(step, clock.now, courier.bytes_up, courier.bytes_down, state, memories())
            checkpoints.save(record.folder, point)

    record.begin(fleet, here.step)
    try:
        state = Loop(strategy, fleet, pace_of(config), clock, config, record, save).run(here.state, here.step)
    except KeyboardInterrupt:
        record.end("interrupted")
        raise
    except BaseException:
        record.end("failed")
        raise
    model = strategy.global_model(state)
    named = None if model is None else {t.name: values for t, values in fleet.layout.split(model)}
    sha256 = fingerprint(checkpoints.arrays_of([state, memories()]))
    record.finish(courier.bytes_up, courier.bytes_down, sha256, named)
    return state


def _clock(courier: Courier, config: RunConfig, now: float) -> Clock:
    if config.clock == "wall":
        return WallClock(courier, now)
    model = registry.find("stragglers", config.stragglers)
    return VirtualClock(courier, model(config.params("stragglers"), config), now)
