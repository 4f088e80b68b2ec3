"""The ClientApp: one handler per message type. Its imports are light: in a deployment every message is a new process."""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedsim import registry, wire
from fedsim.algorithm import Algorithm, ClientBehaviour, Task
from fedsim.config import RunConfig, from_run_config
from fedsim.errors import ConfigError, FedsimError
from fedsim.payload import Answer, Job, Memory, Report
from fedsim.rng import stream


def straggle(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """The one place that sleeps: a delay injected on the wall clock, at the end of which a client may vanish."""
    delay, vanish = wire.injected(message)
    if delay:
        time.sleep(delay)
    if vanish:
        raise FedsimError("dropped out")
    return call_next(message, context)


app = ClientApp(mods=[straggle])
WARM = 128  # clients whose data stays in memory


@app.query()
def roll_call(message: Message, context: Context) -> Message:
    """Who this node is and what it holds."""
    client = _client_id(context)
    data = _data(from_run_config(context.run_config), client)
    labels = np.bincount(data.y_train, minlength=data.classes)
    return wire.pack_presence(client, len(data.y_train), len(data.y_test), labels.tolist(), message)


@app.query("initial")
def initial(message: Message, context: Context) -> Message:
    """The common initial model, for a server that has neither data nor torch."""
    task = _task(from_run_config(context.run_config), _client_id(context), wire.classes_of(message))
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
    uplink = work.behaviour.train(task, job.down, work.memory, work.rng("train"))
    watch.lap("train")
    local = None
    if job.test_local and uplink.local is not None:
        local = task.accuracy(uplink.local, uplink.vectors.get("buffers"))
    watch.lap("test")
    wire.write_memory(context.state, work.memory)
    watch.lap("exchange")
    cost = {**watch.seconds, **task.memory()}
    return wire.pack_answer(Answer(job, uplink, Report(received, personal, local), cost), message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Only measure; nothing is kept."""
    watch, work = Stopwatch(), _work(message, context)
    watch.lap("exchange" if work.warm else "load")
    report = Report(*work.test_received())
    watch.lap("test")
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

    def rng(self, purpose: str) -> np.random.Generator:
        return stream(self.config.seed, self.job.client, self.job.step, self.job.turn, purpose)

    def test_received(self) -> tuple[float | None, float | None]:
        """Accuracies of the received and of the personal model, if this job asks for them; one test if they are one."""
        job, down = self.job, self.job.down
        model, buffers = down.vectors.get("model"), down.vectors.get("buffers")
        received = (
            self.task.accuracy(model, buffers) if job.test_received and down.shared and model is not None else None
        )
        if not job.test_personal:
            return received, None
        personal = self.behaviour.personalise(self.task, down, self.memory, self.rng("personalise"))
        same = personal is model and received is not None
        return received, received if same else self.task.accuracy(personal, buffers)


def _work(message: Message, context: Context) -> Work:
    job, config = wire.unpack_job(message), from_run_config(context.run_config)
    if job.client != _client_id(context):
        raise ConfigError(f"a job for client {job.client} reached client {_client_id(context)}")
    loaded = _task.cache_info().misses
    task = _task(config, job.client, wire.classes_of(message))
    warm = _task.cache_info().misses == loaded
    return Work(job, config, task, _behaviour(config), wire.read_memory(context.state), warm)


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
