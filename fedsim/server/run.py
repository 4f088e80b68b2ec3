"""One federated run on a grid: roll call, loop, checkpoints, summary. Every engine and every strategy goes through here."""

import logging
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from flwr.serverapp import Grid

from fedsim.algorithm import ServerStrategy
from fedsim.attacks import attack_of
from fedsim.client.groups import at_once
from fedsim.config import RunConfig
from fedsim.errors import StorageError
from fedsim.filters import check_filters, filters_of, sent_roles
from fedsim.payload import ClientState
from fedsim.results import checkpoint as checkpoints
from fedsim.results.checkpoint import Checkpoint
from fedsim.results.metric import possible_values
from fedsim.results.record import Record, metrics_of
from fedsim.server.clock import Clock, VirtualClock, WallClock
from fedsim.server.fleet import Fleet
from fedsim.server.loop import Loop
from fedsim.server.pace import Pace, Synchronous
from fedsim.server.roll_call import roll_call
from fedsim.server.stragglers import Stragglers
from fedsim.transport.answer_check import AnswerCheck
from fedsim.transport.direct import DirectMessenger, JobGrid
from fedsim.transport.liveness import Liveness
from fedsim.transport.messenger import Messenger
from fedsim.weights import Weights, fingerprint

log = logging.getLogger(__name__)


@runtime_checkable
class Simulated(Protocol):
    """A grid that holds its clients' states, so that a checkpoint can hold them too."""

    def client_states(self) -> dict[int, ClientState]: ...

    def restore(self, client_states: dict[int, ClientState]) -> None: ...


def pace_and_stragglers(config: RunConfig) -> tuple[Pace, Stragglers]:
    """The run's pace and straggler model; raises ConfigError if they contradict the rest of the configuration."""

    def make(section: str) -> Any:
        return config.part(section)(config.params(section), config)

    return make("pace"), make("stragglers")


def _averages_groups(strategy: ServerStrategy[Any, Any], config: RunConfig) -> bool:
    """Whether groups of results may be averaged where they are made: they all go into the same update, and neither a
    filter nor the aggregator must see them one by one."""
    plain = config.aggregator == "mean" and config.attack == "none" and not config.filter_names
    together = config.clock == "virtual" and config.stragglers == "none" and config.part("pace") is Synchronous
    return strategy.takes_means and plain and together


def answer_check(strategy: ServerStrategy[Any, Any], fleet: Fleet) -> AnswerCheck:
    """What the clients of a run can answer."""
    objective = fleet.clients[0].objective
    ranges = possible_values(objective, metrics_of(strategy.config, objective))
    return AnswerCheck(strategy.expects(), {client.id: client.train for client in fleet.everyone}, ranges)


def run(
    strategy: ServerStrategy[Any, Any], grid: Grid, config: RunConfig, record: Record, initial: Weights | None = None
) -> Any:
    """Runs `strategy` to the end and returns its final state; `initial` replaces the clients' initial model."""
    pace, stragglers = pace_and_stragglers(config)
    fleet = roll_call(grid, config)
    strategy.attach(fleet)
    check_filters(config, strategy.expects())
    attack_of(config).check(fleet, strategy.expects())
    state = strategy.init(fleet.initial if initial is None else initial, fleet)
    told = sum(array.nbytes for client in fleet.everyone for array in client.statistics.values())
    here = Checkpoint(0, 0.0, told, 0, state, {}, {}, [])
    if config.resume and record.folder is not None:
        here = (
            checkpoints.newest(record.folder, type(state), state, lambda it: record.events.is_complete(it.lines))
            or here
        )
        if not here.step:
            log.info("no checkpoint had been written yet: the run begins again")
        if isinstance(grid, Simulated):
            grid.restore(here.client_states)
        elif here.step and (forgetful := [str(c.id) for c in fleet.clients if not c.lasting]):
            log.warning("client %s: no state-dir, so what it remembered of the run is gone", ", ".join(forgetful))
    record.begin(fleet, here.step, here.lines)
    if record.folder is not None:
        checkpoints.keep_until(record.folder, here.step)
    record.matrices.restore(lambda: strategy.matrices(here.state))
    wall = config.clock == "wall"
    messenger: Messenger | DirectMessenger
    if isinstance(grid, JobGrid):
        size = 1 if len(fleet.layouts) > 1 else at_once(config, fleet.layout)  # a group needs one network
        together = size, _averages_groups(strategy, config)
        messenger = DirectMessenger(grid, record.run, fleet.classes, wall, *together)
    else:
        messenger = Messenger(grid, lambda c: fleet[c].node, record.run, fleet.classes, config.timeout, injects=wall)
    messenger.check, messenger.filters = answer_check(strategy, fleet), filters_of(config)
    messenger.roles = sent_roles(config, strategy.expects())
    messenger.on_communication = lambda seconds: record.spent(communication=seconds)
    record.bytes_up, record.bytes_down = here.bytes_up, here.bytes_down
    clock: Clock = WallClock(messenger, here.now) if wall else VirtualClock(messenger, here.now, here.pending)
    fleet.busy |= {pending.client: pending.job.step for pending in here.pending}
    fleet.refused |= here.refused
    fleet.benched |= set(here.benched)
    liveness = None
    if isinstance(messenger, DirectMessenger):
        fleet.absent_until |= here.absent_until
    else:  # every client has just answered the roll call
        liveness = Liveness(grid, fleet, messenger, config)
        messenger.on_poll = liveness.check
        messenger.repeats = lambda client: fleet[client].lasting

    def client_states() -> dict[int, ClientState]:
        return grid.client_states() if isinstance(grid, Simulated) else {}

    def save(step: int, state: Any) -> None:
        if record.folder is not None:
            pending = [job.without_model() for job in clock.pending_jobs()]
            record.sync()
            point = Checkpoint(
                step,
                clock.now,
                record.bytes_up,
                record.bytes_down,
                state,
                client_states(),
                fleet.absent_until,
                pending,
                record.events.lines,
                fleet.refused,
                sorted(fleet.benched),
            )
            checkpoints.save(record.folder, point)
            messenger.run = replace(messenger.run, saved=tuple(checkpoints.saved_steps(record.folder)))

    for pending in here.pending:
        record.sent([pending.job], pending.sent)
    overlap = isinstance(grid, Simulated) and not wall
    loop = Loop(strategy, fleet, pace, clock, stragglers, config, record, save, overlap, liveness)
    try:
        state = loop.run(here.state, here.step)
    except KeyboardInterrupt:
        record.end("interrupted")
        raise
    except StorageError as error:
        record.end("failed")
        raise StorageError(f"{error}. Make room there, then resume the run") from error
    except BaseException:
        record.end("failed")
        raise
    model = strategy.global_model(state)
    named = None if model is None else fleet.layout.named(model)
    sha256 = fingerprint(checkpoints.arrays_of([state, client_states()]))
    record.finish(sha256, named)
    return state
