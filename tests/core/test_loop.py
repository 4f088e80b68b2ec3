"""The loop, the pace and the virtual clock against clients whose answers are written by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from fedsim.clock import VirtualClock
from fedsim.config import RunConfig
from fedsim.errors import FedsimError
from fedsim.fleet import Client, Fleet, muster
from fedsim.loop import Loop
from fedsim.pace import Synchronous
from fedsim.payload import Answer, Arrival, Downlink, Failure, Job, Report, Uplink
from fedsim.record import Record
from fedsim.session import pace_of
from fedsim.vector import Layout, Tensor

ONE = np.ones(1, np.float32)


def fleet(count: int) -> Fleet:
    clients = [Client(id=i, node=100 + i, train=10 * (i + 1), test=5, labels=(5, 5)) for i in range(count)]
    return Fleet(clients, Layout((Tensor("w", (1,), "head"),)), ONE, ONE[:0])


@dataclass
class Counter:
    """A strategy whose state is how often it stepped, and who arrived at each step."""

    steps: list[list[int]] = field(default_factory=list)

    def instruct(self, state: int, client: int) -> Downlink:
        return Downlink({"model": ONE * state})

    def update(self, state: int, arrivals: Sequence[Arrival]) -> int:
        self.steps.append([a.client for a in arrivals])
        return state + 1


class Courier:
    """Delivers in reverse order, as a busy machine might; `answer` decides what a job brings."""

    def __init__(self, answer: Callable[[Job], Answer | Failure]) -> None:
        self.answer, self.jobs, self.out = answer, list[Job](), list[Job]()

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        self.jobs += jobs
        self.out += jobs
        return []

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        return [self.answer(self.out.pop())]


def good(job: Job) -> Answer:
    received, personal = (0.5, 0.25) if job.test_received else (None, None)
    return Answer(
        job,
        Uplink({"delta": ONE}, 1) if job.train else None,
        Report(received, personal, 0.75 if job.test_local else None),
    )


class ByTable:
    """Durations from a table, 1 second otherwise."""

    def __init__(self, table: dict[tuple[int, int], float]) -> None:
        self.table = table

    def duration(self, client: int, step: int) -> float:
        return self.table.get((client, step), 1.0)


def run(config: RunConfig, answer: Callable[[Job], Answer | Failure] = good) -> tuple[Counter, Courier, Record]:
    server, courier, everyone = Counter(), Courier(answer), fleet(config.clients)
    record = Record(None, config, "test")
    record.begin(everyone)
    clock = VirtualClock(courier, ByTable({}))  # type: ignore[arg-type]
    Loop(server, everyone, pace_of(config), clock, config, record).run(0)
    return server, courier, record


def test_everyone_in_client_order_whatever_the_machine_does() -> None:
    server, courier, _ = run(RunConfig(clients=3, rounds=2))
    assert server.steps == [[0, 1, 2], [0, 1, 2]]
    received = [float(job.down.vectors["model"][0]) for job in courier.jobs if job.train]
    assert received == [0, 0, 0, 1, 1, 1]


def test_participation_samples_and_the_rest_is_still_evaluated() -> None:
    server, courier, record = run(RunConfig(clients=10, rounds=3, participation=0.3))
    assert [len(step) for step in server.steps] == [3, 3, 3]
    assert len({tuple(step) for step in server.steps}) > 1
    tested = [job.client for job in courier.jobs if job.step == 1 and job.test_received]
    assert sorted(tested) == list(range(10))
    assert [number for number, _ in record.curves["global"].points] == [0, 1, 2, 3]


def test_eval_every_counts_from_the_start_and_always_ends_with_one() -> None:
    _, courier, record = run(RunConfig(clients=2, rounds=5, eval_every=2))
    assert [number for number, _ in record.curves["personal"].points] == [0, 2, 4, 5]
    assert [number for number, _ in record.curves["local"].points] == [2, 4, 5]
    assert record.summary()["accuracy"]["local"]["final"] == 0.75
    assert len([job for job in courier.jobs if job.train]) == 10


def test_a_failed_client_is_named_and_the_round_goes_on() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "out of memory") if job.client == 1 and job.train else good(job)

    server, _, record = run(RunConfig(clients=3, rounds=2), answer)
    assert server.steps == [[0, 2], [0, 2]]
    assert record.failures == [{"client": 1, "round": r, "reason": "out of memory"} for r in (1, 2)]


def test_a_lost_client_is_not_asked_again() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "gone", offline=True) if job.client == 0 else good(job)

    server, courier, _ = run(RunConfig(clients=3, rounds=3), answer)
    assert server.steps == [[1, 2]] * 3
    assert [job.step for job in courier.jobs if job.client == 0] == [0]


def test_a_round_in_which_everybody_fails_ends_the_run() -> None:
    with pytest.raises(FedsimError, match=r"round 1 got no result from any client\. client 0: no memory; client 1"):
        run(RunConfig(clients=2, rounds=3), lambda job: Failure(job, "no memory"))


def test_the_virtual_clock_orders_by_finish_time_then_client() -> None:
    clock = VirtualClock(Courier(good), ByTable({(0, 0): 5.0, (1, 0): 2.0, (2, 0): 2.0}))  # type: ignore[arg-type]
    clock.send([Job(c, 0, Downlink()) for c in (0, 2, 1)])
    events = [clock.next(None) for _ in range(3)]
    assert [(e.result.job.client, e.sent, e.arrived) for e in events if e] == [(1, 0, 2), (2, 0, 2), (0, 0, 5)]
    assert (clock.now, clock.training, clock.next(None)) == (5.0, 0, None)


def test_the_virtual_clock_stops_at_a_deadline() -> None:
    clock = VirtualClock(Courier(good), ByTable({(0, 0): 5.0}))  # type: ignore[arg-type]
    clock.send([Job(0, 0, Downlink())])
    assert clock.next(3.0) is None
    assert (clock.now, clock.training) == (3.0, 1)
    assert clock.next(None) is not None
    assert clock.now == 5.0


def test_the_cohort_depends_on_seed_and_step_alone() -> None:
    def cohort(seed: int, step: int) -> list[int]:
        pace = Synchronous(None, RunConfig(clients=20, participation=0.5, seed=seed))  # type: ignore[arg-type]
        return pace.admit(range(20), 0, 0, step)

    assert cohort(1, 3) == cohort(1, 3)
    assert cohort(1, 3) != cohort(1, 4)
    assert cohort(1, 3) != cohort(2, 3)
    assert len(set(cohort(1, 3))) == 10


def test_roll_call_problems_are_named() -> None:
    def client(number: int, train: int = 1) -> Client:
        return Client(number, node=number, train=train, test=1, labels=(1,))

    for found, told in [
        ([client(0), client(0)], "client id 0 is claimed by two nodes"),
        ([client(0), client(5)], "client 5, but clients=2 allows 0 to 1"),
        ([client(1)], "no node answered for client 0"),
        ([client(0), client(1, train=0)], "client 1 has no training samples"),
    ]:
        with pytest.raises(FedsimError, match=told):
            muster(found, 2)
