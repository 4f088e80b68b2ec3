"""The time limit of a job on the inline engine, on a clock that only jobs move."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedsim.client.groups import JobGroup
from fedsim.config import RunConfig
from fedsim.engine import inline
from fedsim.engine.base import client_of
from fedsim.engine.inline import InlineGrid
from fedsim.payload import Downlink, Job
from fedsim.results.record import read_events
from fedsim.transport import direct, grid, wire
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


@pytest.fixture
def jobs_take(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, int, int], float]], None]:
    """Sets how many seconds the work on each message or job takes, by its kind, client and step."""

    def arrange(seconds: Callable[[str, int, int], float]) -> None:
        now, execute, run_group = 1000.0, inline.execute, inline.run_group

        def slow_message(message: Message, *rest: Any) -> Any:
            nonlocal now
            now += seconds(message.metadata.message_type, client_of(message), 0)
            return execute(message, *rest)

        def slow_job(group: JobGroup, *rest: Any) -> Any:
            nonlocal now
            (job,) = group.jobs
            now += seconds(wire.TRAIN if job.train else wire.EVALUATE, job.client, job.step)
            return run_group(group, *rest)

        clock = SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now, time=time.time, sleep=time.sleep)
        monkeypatch.setattr(inline, "execute", slow_message)
        monkeypatch.setattr(inline, "run_group", slow_job)
        for module in (inline, grid, direct):
            monkeypatch.setattr(module, "time", clock)

    return arrange


@pytest.mark.parametrize("kind", [wire.ROLL_CALL, wire.TRAIN])
def test_messages_that_wait_for_their_turn_do_not_age(
    kind: str, small: Small, finished: Finished, jobs_take: Callable[..., None]
) -> None:
    jobs_take(lambda found, client, step: 0.6 if found == kind else 0.0)
    assert finished(small("timeout=1"))["failures"] == []


def test_a_job_beyond_its_time_limit_is_the_failure_of_its_client_in_that_round(
    small: Small, finished: Finished, jobs_take: Callable[..., None], tmp_path: Path
) -> None:
    def seconds(kind: str, client: int, step: int) -> float:
        if kind != wire.TRAIN:
            return 0.0
        return 5.0 if (client, step) == (1, 0) else 0.6

    jobs_take(seconds)
    summary = finished(small("timeout=1"))
    reason = "its job took longer than timeout=1 seconds"
    assert summary["failures"] == [{"client": 1, "round": 1, "reason": reason}]
    steps = [event for event in read_events(tmp_path / "run") if event["kind"] == "step"]
    assert [[row["id"] for row in event["clients"]] for event in steps] == [[0, 2, 3], [0, 1, 2, 3]]


def test_a_strategy_that_changes_its_arrays_does_not_change_a_job_that_was_sent(small: Small) -> None:
    """FedAMP writes its cloud models in place while slow clients still wait for their turn."""
    grid, values = InlineGrid(small()), np.ones(3, np.float32)
    shared = Weights(values)
    jobs = [Job(c, 0, Downlink({"model": shared}, {"table": values})) for c in (0, 1)]
    grid.send_groups([JobGroup([job], 10) for job in jobs])
    values[:] = 7
    queued = [job.down for group in grid._groups for job in group.jobs]
    assert [down.model.parameters.tolist() for down in queued] == [[1, 1, 1]] * 2
    assert [down.arrays["table"].tolist() for down in queued] == [[1, 1, 1]] * 2
    assert queued[0].model is queued[1].model, "a broadcast is copied once"
    with pytest.raises(ValueError, match="read-only"):
        queued[0].model.parameters[0] = 5


@pytest.mark.parametrize(
    "keys",
    [
        ("algorithm=ditto", "clients=5", "stragglers=uniform-rounds", "pace=buffered"),
        ("algorithm=fedgen", "clients=4"),
        ("algorithm=fedavg", "clients=70", "partition=iid", "batch-size=8"),
        ("algorithm=kt-pfl", "model=mlp,mlr", "public=40", "clients=4"),
    ],
)
def test_clients_in_threads_give_the_bits_of_one_after_the_other(
    keys: Sequence[str], small: Small, finished: Finished
) -> None:
    alone, threads = (finished(small(*keys, f"workers={n}"), name=f"workers-{n}") for n in (1, 3))
    assert threads["weights_sha256"] == alone["weights_sha256"]
    assert threads["accuracy"] == alone["accuracy"]


def test_clients_in_threads_work_at_the_same_time(
    small: Small, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every job waits until another one has begun: one after the other, the run would not end."""
    together, run_group = Barrier(2), inline.run_group

    def meeting(group: JobGroup, *rest: Any) -> Any:
        together.wait(timeout=30)
        return run_group(group, *rest)

    monkeypatch.setattr(inline, "run_group", meeting)
    assert finished(small("clients=4", "workers=2", "rounds=1"))["failures"] == []
