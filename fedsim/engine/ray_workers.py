"""The workers of the Ray engine. Those of Ray on this machine stay for the next run of their process: a worker that starts
imports torch, which takes longer than a small run."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import ray
from flwr.app import Message

from fedsim import registry
from fedsim.allocator import keep_freed_memory
from fedsim.config import RunConfig
from fedsim.engine.ray_queue import Work
from fedsim.engine.ray_session import started_here
from fedsim.engine.serialize import Bytes, deserialize, serialize
from fedsim.payload import Answer, ClientState, Failure, Job, Report, Uplink

Serialized = tuple[bytes, list[Bytes]]
Outcome = tuple[Uplink | None, Report, Mapping[str, float]] | str  # an answer or the reason of a failure, without job
JobArguments = tuple[bytes, list[int], list[int | None]]  # the head of a work, positions of its buffers and its states
Shares = tuple[str, float, float]  # the address of a Ray, and what a worker has of its cores and GPUs
VARIABLES = "FEDSIM_"  # begins those of the environment that fedsim reads

_idle: list[tuple[Shares, Any]] = []  # workers of earlier runs of this process


class Worker:
    """Runs in an actor. Serves one or several jobs per call: a call costs Ray more than a short job takes."""

    def __init__(self, objects: Mapping[tuple[str, str], Any]) -> None:
        """`objects`: see `registry.added`."""
        keep_freed_memory()
        for (kind, name), thing in objects.items():
            registry.add(kind, name, thing)

    def begin(self, config: RunConfig, surroundings: "Surroundings | None") -> list[Any]:
        """Makes the worker ready for the jobs of a run: its reply means that all is loaded, which counts for no job's
        time. `surroundings`: of the run's process, if it is on the same machine."""
        self._config = config
        if surroundings is not None:
            surroundings.adopt()
        import_module("fedsim.clients.task")
        return []

    def end(self) -> None:
        """Releases the data and models of the run's clients."""
        from fedsim.client.jobs import forget

        forget()

    def handle(self, jobs: list[JobArguments], states_apart: bool, *arguments: Any) -> Any:
        """Returns the results, each with the client's new state or None and the seconds it took.

        `states_apart`: the states are returned as objects of their own, so that they stay in the object store.
        """
        results, states = [], []
        for head, buffers, places in jobs:
            began = time.perf_counter()
            before = [None if place is None else arguments[place] for place in places]
            result, after = self._serve(head, [arguments[i] for i in buffers], before)
            kept = [None if state is None else serialize(state) for state in after]
            states += kept
            seconds = (time.perf_counter() - began) / len(places)
            results.append((result, [state is not None for state in kept] if states_apart else kept, seconds))
        return (results, *states) if states_apart else results

    def _serve(
        self, head: bytes, buffers: list[Bytes], states: Sequence[Serialized | None]
    ) -> tuple[Serialized, list[ClientState | None]]:
        from fedsim.client.jobs import run_group
        from fedsim.engine.base import execute

        work: Work = deserialize(head, buffers)
        before = [deserialize(*state) if state else ClientState() for state in states]
        if isinstance(work, Message):
            reply, after = execute(work, self._config, before[0])
            return serialize(reply), [after]
        results = run_group(work, self._config, before)
        return serialize([_outcome(result) for result, _ in results]), [state for _, state in results]


class Surroundings:
    """What a process of the same machine takes over: working folder, path of modules, variables that fedsim reads."""

    def __init__(self) -> None:
        self.folder, self.path = Path.cwd(), list(sys.path)
        self.variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}

    def adopt(self) -> None:
        os.chdir(self.folder)
        sys.path[:0] = [place for place in self.path if place not in sys.path]
        for name in [name for name in os.environ if name.startswith(VARIABLES)]:
            del os.environ[name]
        os.environ.update(self.variables)


class Workers:
    """Where a run gets its workers from: those that an earlier run of this process left, or new ones.

    A run with objects or modules of the user's own gets new ones, which end with it: the code may have changed meanwhile.
    """

    def __init__(self, config: RunConfig, cpus: float, gpus: float) -> None:
        """`cpus`, `gpus`: the share of each worker."""
        self._config, here = config, started_here()
        own_code = bool(registry.added()) or any(registry.is_place("model", name) for name in config.models)
        self._stay = here and not own_code
        self._surroundings = Surroundings() if here else None
        self._shares: Shares = (ray.get_runtime_context().gcs_address, cpus, gpus)
        self._factory: Any = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus)
        _end_idle(self._shares if self._stay else None)

    def start(self) -> tuple[Any, Any]:
        """A worker, and the reference to its reply once it is ready."""
        actor = _idle.pop()[1] if _idle else self._factory.remote(registry.added())
        return actor, actor.begin.remote(self._config, self._surroundings)

    def release(self, actor: Any, idle: bool) -> None:
        """The run has ended. `idle`: the worker has no jobs any more."""
        if self._stay and idle:
            actor.end.remote()
            _idle.append((self._shares, actor))
        else:
            ray.kill(actor)


def _end_idle(but: Shares | None) -> None:
    """Ends the workers that wait for the next run, but those with these shares: they hold cores that others need."""
    here = ray.get_runtime_context().gcs_address
    for shares, actor in [entry for entry in _idle if entry[0] != but]:
        _idle.remove((shares, actor))
        if shares[0] == here:  # others have ended with their Ray
            ray.kill(actor)


def result_of(job: Job, outcome: Outcome) -> Answer | Failure:
    return Failure(job, outcome) if isinstance(outcome, str) else Answer(job, *outcome)


def _outcome(result: Answer | Failure) -> Outcome:
    return result.reason if isinstance(result, Failure) else (result.uplink, result.report, result.cost)
