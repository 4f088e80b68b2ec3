"""One federated run on a grid: roll call, loop, checkpoints, summary. Every engine and every strategy goes through here."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from flwr.serverapp import Grid

from fedsim import checkpoint as checkpoints
from fedsim.attendance import Attendance
from fedsim.checkpoint import Checkpoint
from fedsim.clock import Clock, VirtualClock, WallClock, unloaded
from fedsim.config import RunConfig
from fedsim.courier import Courier
from fedsim.fleet import Fleet, roll_call
from fedsim.loop import Loop, Server
from fedsim.pace import Pace
from fedsim.payload import Memory
from fedsim.record import Record
from fedsim.stragglers import Stragglers
from fedsim.vector import Vec, fingerprint


class Strategy(Server[Any], Protocol):
    """What a session asks of a strategy."""

    def enlist(self, fleet: Fleet) -> None: ...

    def init(self, theta: Vec, fleet: Fleet) -> Any: ...

    def global_model(self, state: Any) -> Vec | None: ...


@runtime_checkable
class Simulated(Protocol):
    """A grid that holds its clients' memories, so that a checkpoint can hold them too."""

    def memories(self) -> dict[int, Memory]: ...

    def restore(self, memories: dict[int, Memory]) -> None: ...


def rhythm(config: RunConfig) -> tuple[Pace, Stragglers]:
    """The run's pace and straggler model; nonsense between them and the rest of the configuration is refused here."""

    def make(section: str) -> Any:
        return config.part(section)(config.params(section), config)

    return make("pace"), make("stragglers")


def run(strategy: Strategy, grid: Grid, config: RunConfig, record: Record, theta: Vec | None = None) -> Any:
    """Runs `strategy` to the end and returns its final state; `theta` replaces the clients' initial model."""
    pace, stragglers = rhythm(config)
    fleet = roll_call(grid, config)
    strategy.enlist(fleet)
    state = strategy.init(fleet.theta if theta is None else theta, fleet)
    here = Checkpoint(0, 0.0, 0, 0, state, {}, {}, [])
    if config.resume and record.folder is not None:
        here = checkpoints.newest(record.folder, type(state)) or here
        if not here.step:
            print("no checkpoint had been written yet: the run begins again", flush=True)
        if isinstance(grid, Simulated):
            grid.restore(here.memories)
        elif here.step and (forgetful := [str(c.id) for c in fleet.clients if not c.lasting]):
            print(f"client {', '.join(forgetful)}: no state-dir, so what it remembered of the run is gone", flush=True)
    record.begin(fleet, here.step)
    wall = config.clock == "wall"
    courier = Courier(grid, lambda c: fleet[c].node, record.run, fleet.classes, config.timeout, injects=wall)
    courier.expects = strategy.expects()
    courier.spend = lambda seconds: record.spent(communication=seconds)
    record.bytes_up, record.bytes_down = here.bytes_up, here.bytes_down
    clock: Clock = WallClock(courier, here.now) if wall else VirtualClock(courier, here.now, here.flights)
    fleet.busy |= {flight.client: flight.job.step for flight in here.flights}
    attendance = None
    if isinstance(grid, Simulated):
        fleet.away |= here.away
    else:  # everyone has just answered the roll call
        attendance = Attendance(grid, fleet, courier, config.timeout)
        courier.meanwhile = attendance.look

    def memories() -> dict[int, Memory]:
        return grid.memories() if isinstance(grid, Simulated) else {}

    def save(step: int, state: Any) -> None:
        if record.folder is not None:
            flights = [unloaded(flight) for flight in clock.settle()]
            traffic = record.bytes_up, record.bytes_down
            checkpoints.save(
                record.folder, Checkpoint(step, clock.now, *traffic, state, memories(), fleet.away, flights)
            )
            courier.run = replace(courier.run, saved=step)

    for flight in here.flights:
        record.sent([flight.job], flight.sent)
    overlap = isinstance(grid, Simulated) and not wall
    loop = Loop(strategy, fleet, pace, clock, stragglers, config, record, save, overlap, attendance)
    try:
        state = loop.run(here.state, here.step)
    except KeyboardInterrupt:
        record.end("interrupted")
        raise
    except BaseException:
        record.end("failed")
        raise
    model = strategy.global_model(state)
    named = None if model is None else {t.name: values for t, values in fleet.layout.split(model)}
    sha256 = fingerprint(checkpoints.arrays_of([state, memories()]))
    record.finish(sha256, named)
    return state
