"""One job on a client, from what it received to its answer. The ClientApp and fedsim's own engines both run it."""

import logging
import os
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import isfinite
from threading import Lock
from typing import Any

import numpy as np

from fedsim import registry
from fedsim.algorithm import Algorithm, ClientBehaviour
from fedsim.attacks import SUCCESS, Attack, attack_of
from fedsim.client.groups import JobGroup, Result, averaged
from fedsim.client.state_store import StateStore
from fedsim.config import FineTuning, RunConfig, lr_at
from fedsim.errors import ConfigError, FedsimError
from fedsim.filters import Filter, filters_of
from fedsim.payload import (
    TRAINING,
    Answer,
    Array,
    ClientState,
    Failure,
    Job,
    Metrics,
    PersonalModel,
    Report,
    Role,
    Uplink,
    arrays_in,
    server_made_personal,
    told,
)
from fedsim.rng import stream, streams
from fedsim.weights import Weights, is_finite

log = logging.getLogger(__name__)
GOAL = "attack"  # the samples on which the success of an attack is measured
READ = "batches-read"  # in the client's state: where batches in order continue
MEMORY_SECONDS = 0.2  # between two readings of the process's peak memory, which cost as much as a small job


def run_group(group: JobGroup, config: RunConfig, states: Sequence[ClientState]) -> list[Result]:
    """The results of a group's jobs, each with the client's new state if it has one. A job that raises changes no state.

    Updates that have no mean stay with their clients: the server then names those whose updates it refuses.
    """
    results = _results(group, config, states)
    if not group.averages:
        return list(results)
    try:
        return averaged(results)
    except ValueError as problem:
        log.debug("a group of %d jobs is not averaged: %s", len(group.jobs), problem)
        return run_group(replace(group, averages=False), config, states)


def _results(group: JobGroup, config: RunConfig, states: Sequence[ClientState]) -> Iterable[Result]:
    """The results one after the other; those of clients that are trained at once, and none of which fails, together."""
    if group.at_once and len(group.jobs) > 1 and all(job.train for job in group.jobs):
        try:
            works = [_client_job(job, group, config, state) for job, state in zip(group.jobs, states, strict=True)]
            if (answers := _train_at_once(works, group.averages)) is not None:
                return [(answer, _changed(work)) for answer, work in zip(answers, works, strict=True)]
        except Exception:
            log.debug("a group of %d jobs failed: each is done by itself", len(group.jobs), exc_info=True)
    return (_run(job, group, config, state) for job, state in zip(group.jobs, states, strict=True))


def _run(job: Job, group: JobGroup, config: RunConfig, state: ClientState) -> Result:
    try:
        if group.sleeps:
            sleep_delay(job.simulated_delay.delay, job.simulated_delay.absence is not None)
        work = _client_job(job, group, config, state)
        answer = work.run()
    except Exception as error:
        log.debug("client %d: its job failed", job.client, exc_info=True)
        return Failure(job, described(error)), None
    return answer, _changed(work)


def _client_job(job: Job, group: JobGroup, config: RunConfig, state: ClientState) -> "ClientJob":
    own = ClientState(dict(state.weights), dict(state.arrays), dict(state.numbers))
    task, warm = task_of(config, job.client, group.classes, poisoned=poisons_data(config, job))
    return ClientJob(job, config, task, behaviour_of(config), own, warm, group.roles)


def _changed(work: "ClientJob") -> ClientState | None:
    state = work.state
    return state if work.job.train and (state.weights or state.arrays or state.numbers) else None


def _train_at_once(works: Sequence["ClientJob"], averages: bool) -> list[Answer] | None:
    """The answers of jobs whose models are trained together; None if their algorithm or network cannot be.

    `averages`: the last answer may hold the mean of all updates.
    """
    from fedsim.clients.local_sgd import LocalSGD
    from fedsim.clients.vectorized import Member, can_vectorize, fit_group

    first = works[0]
    behaviour = first.behaviour
    if not isinstance(behaviour, LocalSGD) or not can_vectorize(first.task):
        return None
    began, members, tested = time.perf_counter(), [], []
    rngs = streams(first.config.seed, [work.rng_key for work in works], "train")
    for work, rng in zip(works, rngs, strict=True):
        down, state = work.job.down, work.state
        if not behaviour.vectorizes(work.task, down, state):
            return None
        tested.append(work.test_received())
        work.start_at(state)
        hook = behaviour.gradient_hook(work.task, down, state)
        members.append(Member(work.task, down.model, rng, hook))
    group = fit_group(members)
    if averages and behaviour.sends_delta_alone and not any(work.job.test_local for work in works):
        uplinks = group.averaged_uplinks()
    else:
        uplinks = [
            behaviour.uplink(work.task, work.job.down, work.state, member.rng, fit)
            for work, member, fit in zip(works, members, group.fits(), strict=True)
        ]
    share = (time.perf_counter() - began) / len(works)
    return [work.finish(uplink, before, share) for work, uplink, before in zip(works, uplinks, tested, strict=True)]


def described(error: Exception) -> str:
    """An exception in one line; one that is not a message for the user also says where it was raised."""
    line = f"{type(error).__name__}: {error}"
    if isinstance(error, FedsimError):
        return line
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{line} ({place.filename}:{place.lineno})"


def sleep_delay(seconds: float, drops_out: bool) -> None:
    """The one place where a client sleeps: an injected delay, at the end of which it may drop out (FedsimError)."""
    if seconds:
        time.sleep(seconds)
    if drops_out:
        raise FedsimError("dropped out")


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
class ClientJob:
    """Everything one job needs."""

    job: Job
    config: RunConfig
    task: Any  # a TorchTask
    behaviour: ClientBehaviour[Any]
    state: ClientState
    warm: bool  # its data was in memory already
    roles: Mapping[str, Role] = field(default_factory=dict)
    watch: Stopwatch = field(default_factory=Stopwatch)

    def run(self) -> Answer:
        """Evaluates the received model, trains, evaluates the result: evaluation needs no exchange of its own."""
        job, watch = self.job, self.watch
        watch.lap("exchange" if self.warm else "load")
        received, personal = self.test_received()
        watch.lap("test")
        if job.newcomer:
            return self._met(received)
        if not job.train:
            return Answer(job, None, Report(received, personal), watch.seconds)
        uplink = self.train()
        watch.lap("train")
        return self.finish(uplink, (received, personal))

    def _met(self, received: Metrics | None) -> Answer:
        """The answer of a client that never took part: it works as in a first round, and keeps the result to itself."""
        uplink = self.train()
        self.watch.lap("train")
        personal = self.evaluate(self.personal)
        local = self.evaluate(uplink.local) if uplink.local is not None else None
        self.watch.lap("test")
        return Answer(self.job, None, Report(received, personal, local), self.watch.seconds)

    def finish(
        self, uplink: Uplink, tested: tuple[Metrics | None, Metrics | None], seconds: float | None = None
    ) -> Answer:
        """The answer after training; `seconds`: of the training, if it was done together with other clients'."""
        if seconds is not None:
            self.watch.seconds = {"train": seconds}
            self.note_batches_read()
        local = self.evaluate(uplink.local) if self.job.test_local and uplink.local is not None else None
        self.watch.lap("test")
        cost = {**self.watch.seconds, **_peak_memory(self.task)}
        self._check_state()
        sent = uplink if uplink.local is None else replace(uplink, local=None)
        if not all(map(isfinite, sent.metrics.values())):
            sent = replace(sent, metrics=told(sent.metrics))
        return Answer(self.job, self.filtered(sent), Report(*tested, local), cost)

    def _check_state(self) -> None:
        """Raises FedsimError if training has made what the client keeps useless: the state before it stays."""
        for name, array in arrays_in(self.state):
            if not is_finite(array):
                rate = f"lr={self.config.lr:g}"
                raise FedsimError(f"training diverged: {name} of the client's state is not finite. Lower {rate}")

    @cached_property
    def personal(self) -> Weights | PersonalModel:
        """The model this client would use now, which is a tuned copy of the global one in a run with `finetune`. One that
        the server made is evaluated without the client's state."""
        from fedsim.clients.finetuning import personal_model

        state = ClientState() if server_made_personal(self.job.down) else self.state
        self.start_at(state)
        tuning: FineTuning = self.config.params("finetune")
        return personal_model(self.behaviour, tuning, self.task, self.job.down, state, self.rng("personalise"))

    def rng(self, purpose: str) -> np.random.Generator:
        return stream(self.config.seed, *self.rng_key, purpose)

    @property
    def rng_key(self) -> tuple[int, int, int]:
        return self.job.client, self.job.step, self.job.job_index

    def train(self) -> Uplink:
        """The job itself. Batches in order continue after the client's last job; its state holds the place."""
        self.start_at(self.state)
        uplink = self.behaviour.train(self.task, self.job.down, self.state, self.rng("train"))
        self.note_batches_read()
        return uplink

    def note_batches_read(self) -> None:
        if self.config.batches == "in-order":
            self.state.numbers[READ] = self.task.batches_read

    def filtered(self, uplink: Uplink) -> Uplink:
        """What the run's filters let out of what the client, if it is malicious, made of its uplink."""
        if (attack := attack_in(self.config, self.job)) is not None:
            uplink = attack.on_client(uplink, self.roles, self.job.down, self.rng("attack"))
        if self.config.filters:
            for name, each in zip(self.config.filter_names, _filters(self.config), strict=True):
                uplink = each.on_client(uplink, self.roles, self.rng(f"filter-{name}"))
        return uplink

    def test_received(self) -> tuple[Metrics | None, Metrics | None]:
        """Metrics of the received and of the personal model, if this job asks for them; one test if they are one."""
        job, down = self.job, self.job.down
        asked = job.test_received and down.shared
        model = self.behaviour.global_model(self.task, down) if asked else None
        received = None
        if model is not None:
            common = registry.find("algorithm", self.config.algorithm).common or "model"
            received = self.evaluate(PersonalModel(model, network=common))
        if not job.test_personal:
            return received, None
        same = self.personal is model and received is not None
        return received, received if same else self.evaluate(self.personal)

    def evaluate(self, model: Weights | PersonalModel) -> Metrics | None:
        """Metrics of a model on the client's tests, as the client tells them; None without tests."""
        metrics = self._measure(model if isinstance(model, PersonalModel) else PersonalModel(model))
        return None if metrics is None else told(metrics, self.task.objective.metrics)

    def _measure(self, own: PersonalModel) -> Metrics | None:
        metrics: Metrics | None = self.task.evaluate(own.weights, predict=own.predict, network=own.network)
        if metrics is not None and self.config.eval_training:
            training = self.task.evaluate(own.weights, "train", own.predict, own.network)
            metrics = {**metrics, **{TRAINING + name: value for name, value in training.items()}}
        if metrics is None or not self.task.has(GOAL):
            return metrics
        wanted = self.task.evaluate(own.weights, GOAL, own.predict, own.network)
        return {**metrics, SUCCESS: wanted["accuracy"]} if wanted else metrics

    def keep(self, store: StateStore, run: str, metrics: Metrics | None) -> None:
        """Stores the model that was evaluated as the personal one."""
        from fedsim.client.model_card import card, facts

        own = self.personal if isinstance(self.personal, PersonalModel) else PersonalModel(self.personal)
        layout = self.task.network(own.network).layout
        tensors = layout.named(own.weights)
        data, config = data_of(self.config, self.job.client), self.task.config
        if own.network in registry.providers("model") or registry.is_place("model", own.network):
            config = config.replace(model=own.network)
        rows = facts(config, run, self.job.client, (len(data.y_train), len(data.y_test)), metrics)
        text = card(
            rows,
            config,
            store.model.name,
            data.x_train.shape[1:],
            self.task.output_size,
            bool(layout.buffers),
            data.vocabulary,
        )
        store.keep(tensors, rows, text)

    def start_at(self, state: ClientState) -> None:
        """Sets the learning rate of the job, and the place of batches in order: a task serves many jobs, and batches
        read to personalize do not count."""
        self.task.lr = lr_at(self.config, self.job.step)
        self.task.batches_read = int(state.numbers.get(READ, 0))


@lru_cache(maxsize=8)
def behaviour_of(config: RunConfig) -> ClientBehaviour[Any]:
    """The client half of the run's algorithm; it holds parameters only, so one object serves all clients."""
    algorithm: Algorithm[Any] = registry.find("algorithm", config.algorithm)
    behaviour: ClientBehaviour[Any] = registry.load(algorithm.client)(config.params(config.algorithm))
    return behaviour


@lru_cache(maxsize=8)
def _filters(config: RunConfig) -> Sequence[Filter]:
    return filters_of(config)


_memory: dict[str, Any] = {"time": -MEMORY_SECONDS, "peaks": {}}


def _peak_memory(task: Any) -> dict[str, float]:
    """The process's peak memory, read again only after a while."""
    if time.monotonic() - _memory["time"] >= MEMORY_SECONDS:
        _memory.update(peaks=task.peak_memory(), time=time.monotonic())
    peaks: dict[str, float] = _memory["peaks"]
    return peaks


# Data and tasks of the clients that this process serves


class TaskCache:
    """Tasks by (configuration, client, classes, poisoned), the least recently used ones dropped beyond a number of bytes."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[tuple[RunConfig, int, int, bool], Any] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: tuple[RunConfig, int, int, bool]) -> tuple[Any, bool]:
        """The task, and whether it was there already."""
        with self._lock:
            return self._get(key)

    def _get(self, key: tuple[RunConfig, int, int, bool]) -> tuple[Any, bool]:
        if key in self._tasks:
            self._tasks.move_to_end(key)
            return self._tasks[key], True
        from fedsim.clients.task import TorchTask  # torch is loaded by jobs, not by the roll call

        config, client, classes, poisoned = key
        data, attack = data_of(config, client), attack_of(config)
        goal = attack.goal(data) if attack.has_goal else None
        own = _for_model(config, config.model_of(client))
        task = TorchTask(own, attack.poisoned(data, client) if poisoned else data, classes, client, goal)
        self._tasks[key] = task
        self._bytes += task.nbytes
        while self._bytes > cache_bytes() and len(self._tasks) > 1:
            self._bytes -= self._tasks.popitem(last=False)[1].nbytes
        return task, False

    def clear(self) -> None:
        self._tasks.clear()
        self._bytes = 0


_cache = TaskCache()


@lru_cache(maxsize=1)
def cache_bytes() -> int:
    """An eighth of this machine's memory for the data of clients, per process."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8


def task_of(config: RunConfig, client: int, classes: int, poisoned: bool = False) -> tuple[Any, bool]:
    """A client's task, and whether its data was in memory already. `poisoned`: with the training data of an attacker."""
    return _cache.get((config, client, classes, poisoned))


def attack_in(config: RunConfig, job: Job) -> Attack | None:
    """The attack that this job is part of, if its client is malicious."""
    if config.attack == "none" or not job.train:
        return None
    attack = attack_of(config)
    return attack if job.client in attack.malicious(job.step) else None


def poisons_data(config: RunConfig, job: Job) -> bool:
    """Whether the client trains on poisoned data in this job."""
    return (attack := attack_in(config, job)) is not None and attack.poisons_data


@lru_cache(maxsize=32)
def _for_model(config: RunConfig, model: str) -> RunConfig:
    """The configuration of the clients with this model: equal ones share their networks."""
    return config.with_model(model)


def data_of(config: RunConfig, client: int) -> Any:
    """A client's samples, read anew; its task keeps them."""
    return _source(config).client(client)


def check_targets(config: RunConfig, data: Any) -> None:
    """Raises ConfigError if the run's algorithm cannot learn the targets of a client's data."""
    wanted = registry.find("algorithm", config.algorithm).targets
    single = data.y_train.ndim == 1
    fitting = ["any", *(["classes"] if data.classes else []), *(["labels"] if data.classes and single else [])]
    if wanted in fitting:
        return
    need = "one class label per sample" if wanted == "labels" else "classes"
    held = f"{data.y_train[0].size} tokens per sample" if data.classes else "real numbers"
    known = [name for name in registry.names("algorithm") if registry.find("algorithm", name).targets in fitting]
    raise ConfigError(
        f"{config.algorithm} needs {need}, but the targets of {config.dataset} (objective={data.objective}) are {held}. "
        f"Algorithms that can learn them: {', '.join(known)}"
    )


def statistics_of(config: RunConfig, data: Any) -> Mapping[str, Array]:
    """What the run's algorithm wants to know of a client's data before the first round."""
    target = registry.find("algorithm", config.algorithm).statistics
    found: Mapping[str, Array] = registry.load(target)(data, config.params(config.algorithm)) if target else {}
    return found


@lru_cache(maxsize=4)
def _source(config: RunConfig) -> Any:
    from fedsim.partitions.client_data import ClientDataSource

    return ClientDataSource(config)


def forget() -> None:
    """Releases the data and models of all clients, before this process works on another run: names of the Python API may
    stand for other objects then."""
    _cache.clear()
    _source.cache_clear()
    behaviour_of.cache_clear()
    if (loaded := sys.modules.get("fedsim.clients.task")) is not None:
        loaded.network.cache_clear()
