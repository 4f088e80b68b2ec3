"""The ClientApp: one handler per message type. Its imports are light: in a deployment every message is a new process."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedsim import registry, wire
from fedsim.algorithm import Algorithm, ClientBehaviour, Task
from fedsim.config import RunConfig, from_run_config
from fedsim.disk import Disk
from fedsim.errors import ConfigError, FedsimError
from fedsim.payload import Answer, Job, Memory, Model, Report, Uplink
from fedsim.rng import stream
from fedsim.vector import Vec


def straggle(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """The one place that sleeps: a delay injected on the wall clock, at the end of which a client may vanish."""
    delay, vanish = wire.injected(message)
    if delay:
        time.sleep(delay)
    if vanish:
        raise FedsimError("dropped out")
    return call_next(message, context)


app = ClientApp(mods=[straggle])
STATE_DIR = "state-dir"  # node config: where the node keeps what must last
WARM = 128  # clients whose data stays in memory
OWN = "own"  # the partition of silos that each bring their own data
READ = "batches-read"  # what a client remembers of batches in order


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Who this node is and what it holds. Whatever is wrong with its data comes out here, under the client's name."""
    client = _client_id(context)
    try:
        data = _data(_config(context), client)
    except (FedsimError, OSError) as error:
        raise ConfigError(f"client {client}: {error}") from error
    labels = np.bincount(data.y_train, minlength=data.classes)
    shape, lasting = data.x_train.shape[1:], STATE_DIR in context.node_config
    return wire.pack_presence(client, len(data.y_train), len(data.y_test), labels.tolist(), shape, lasting, message)


@app.query("alive")
def alive(message: Message, context: Context) -> Message:
    """A sign of life: whoever gives it has dealt with every message that was sent before."""
    return Message(RecordDict(), reply_to=message)


@app.query("initial")
def initial(message: Message, context: Context) -> Message:
    """The common initial model, for a server that has neither data nor torch."""
    task = _task(_config(context), _client_id(context), wire.classes_of(message))
    return wire.pack_initial(task.layout, task.initial(), task.initial_buffers(), message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Measure what was received, train, measure what came out: evaluation needs no exchange of its own."""
    watch, work = Stopwatch(), _work(message, context)
    watch.lap("exchange" if work.warm else "load")
    job, task = work.job, work.task
    task.memory()
    received, personal = work.test_received()
    watch.lap("test")
    uplink = work.train()
    watch.lap("train")
    local = None
    if job.test_local and uplink.local is not None:
        local = _accuracy(task, uplink.local, uplink.vectors)
    watch.lap("test")
    if work.disk is not None:
        work.disk.write(job, work.memory)
    else:
        wire.write_memory(context.state, work.memory)
    watch.lap("exchange")
    cost = {**watch.seconds, **task.memory()}
    return wire.pack_answer(Answer(job, uplink, Report(received, personal, local), cost), message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Only measure; and at the end of a run keep the personal model, if the node has a place for it."""
    watch, work = Stopwatch(), _work(message, context)
    watch.lap("exchange" if work.warm else "load")
    report = Report(*work.test_received())
    watch.lap("test")
    if work.job.keep and work.disk is not None:
        work.keep(work.disk, wire.run_of(message).id, wire.classes_of(message), report.personal)
    return wire.pack_answer(Answer(work.job, None, report, watch.seconds), message)


class Stopwatch:
    """Where the seconds of a job went."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


@dataclass
class Work:
    """Everything one job needs."""

    job: Job
    config: RunConfig
    task: Task
    behaviour: ClientBehaviour[Any]
    memory: Memory
    warm: bool  # its data was here already
    disk: Disk | None  # where the memory lasts; None: it lives in Flower's state, as long as that does

    @cached_property
    def personal(self) -> Vec | Model:
        """The model this client would use now."""
        self._turn_back()
        return self.behaviour.personalise(self.task, self.job.down, self.memory, self.rng("personalise"))

    def rng(self, purpose: str) -> np.random.Generator:
        return stream(self.config.seed, self.job.client, self.job.step, self.job.turn, purpose)

    def train(self) -> Uplink:
        """The job itself. Batches in order go on where the last one stopped: that place is the client's to remember."""
        self._turn_back()
        uplink = self.behaviour.train(self.task, self.job.down, self.memory, self.rng("train"))
        if self.config.batches == "in-order":
            self.memory.numbers[READ] = self.task.read
        return uplink

    def test_received(self) -> tuple[float | None, float | None]:
        """Accuracies of the received and of the personal model, if this job asks for them; one test if they are one."""
        job, down = self.job, self.job.down
        model = down.vectors.get("model")
        asked = job.test_received and down.shared
        received = _accuracy(self.task, model, down.vectors) if asked and model is not None else None
        if not job.test_personal:
            return received, None
        same = self.personal is model and received is not None
        return received, received if same else _accuracy(self.task, self.personal, down.vectors)

    def keep(self, disk: Disk, run: str, classes: int, accuracy: float | None) -> None:
        """The model that was tested as the personal one becomes a file."""
        from fedsim.card import card, facts

        vector, buffers = _with_buffers(self.personal, self.job.down.vectors)
        tensors = self.task.layout.named(vector, self.task.initial_buffers() if buffers is None else buffers)
        data, config = _data(self.config, self.job.client), self.config
        told = facts(config, run, self.job.client, (len(data.y_train), len(data.y_test)), accuracy)
        text = card(told, config, disk.model.name, data.x_train.shape[1:], classes, bool(self.task.layout.buffers))
        disk.keep(tensors, told, text)

    def _turn_back(self) -> None:
        """To where training stopped: a task serves many jobs, and batches read for personalising do not count."""
        self.task.read = int(self.memory.numbers.get(READ, 0))


def _with_buffers(model: Vec | Model, beside: Mapping[str, Vec]) -> Model:
    """A model with its own buffers, or with those that travel beside it."""
    return model if isinstance(model, Model) else Model(model, beside.get("buffers"))


def _accuracy(task: Task, model: Vec | Model, beside: Mapping[str, Vec]) -> float | None:
    return task.accuracy(*_with_buffers(model, beside))


def _work(message: Message, context: Context) -> Work:
    job, config = wire.unpack_job(message), _config(context)
    if job.client != _client_id(context):
        raise ConfigError(f"a job for client {job.client} reached client {_client_id(context)}")
    loaded = _task.cache_info().misses
    task = _task(config, job.client, wire.classes_of(message))
    warm = _task.cache_info().misses == loaded
    disk = _disk(message, context, job.client)
    memory = wire.read_memory(context.state) if disk is None else disk.read(job if job.train else None)
    return Work(job, config, task, _behaviour(config), memory, warm, disk)


def _disk(message: Message, context: Context, client: int) -> Disk | None:
    root = context.node_config.get(STATE_DIR)
    return None if root is None else Disk(Path(str(root)), wire.run_of(message), client)


def _behaviour(config: RunConfig) -> ClientBehaviour[Any]:
    algorithm: Algorithm[Any] = registry.find("algorithm", config.algorithm)
    behaviour: ClientBehaviour[Any] = registry.load(algorithm.client)(config.params(config.algorithm))
    return behaviour


def _client_id(context: Context) -> int:
    """The stable id: the node's own configuration says it, on every engine."""
    try:
        return int(context.node_config["partition-id"])
    except KeyError:
        raise ConfigError('the node has no partition-id: start it with --node-config "partition-id=0 ..."') from None


def _config(context: Context) -> RunConfig:
    """The run's configuration as this node carries it out: it may bring its own data and choose its device."""
    config, node = from_run_config(context.run_config), context.node_config
    own = {key: str(node[key]) for key in ("data", "device") if key in node}
    return _adapted(config, **own) if own else config


@lru_cache(maxsize=WARM)
def _adapted(config: RunConfig, data: str = "", device: str = "") -> RunConfig:
    if data and not Path(data).is_absolute():
        raise ConfigError(f"the node's data={data} must be an absolute path")
    if data and config.partition != OWN:
        raise ConfigError(
            f"the node brings its own data ({data}), which partition={config.partition} cannot split: "
            f"run with partition={OWN}, or start the node without data"
        )
    return config.replace(dataset=data or config.dataset, device=device or config.device)


def forget() -> None:
    """Lets go of every client's data and model: a process that goes on with another run needs the room."""
    _task.cache_clear()
    _data.cache_clear()


@lru_cache(maxsize=WARM)
def _data(config: RunConfig, client: int) -> Any:
    from partitions.silo import client_data

    return client_data(config, client)


@lru_cache(maxsize=WARM)
def _task(config: RunConfig, client: int, classes: int) -> Any:
    from clients.task import TorchTask  # torch is loaded by those who train, not by the roll call

    return TorchTask(config, _data(config, client), classes)
