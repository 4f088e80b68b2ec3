"""The loop and the clocks against clients whose answers are written by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithm import GlobalState, ServerStrategy
from fedsim.config import NoParams, RunConfig, parse
from fedsim.errors import FedsimError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Answer, Arrival, Downlink, Failure, Job, Report, SimulatedDelay, Spec, Uplink
from fedsim.results.record import Record
from fedsim.server.clock import VirtualClock
from fedsim.server.fleet import Client, Fleet
from fedsim.server.loop import Loop
from fedsim.server.roll_call import check_clients
from fedsim.server.run import pace_and_stragglers
from fedsim.server.stragglers import JobProfile, Stragglers
from fedsim.weights import Weights

ONE = np.ones(1, np.float32)


def fleet(count: int) -> Fleet:
    clients = [Client(id=i, node=100 + i, train=10 * (i + 1), test=5, labels=(5, 5)) for i in range(count)]
    return Fleet(clients, Layout((Tensor("w", (1,), "head"),)), Weights(ONE))


class Counter(ServerStrategy[NoParams, int]):
    """A strategy whose state is the number of its steps; notes the clients of each step with their staleness."""

    def __init__(self) -> None:
        super().__init__(NoParams(), RunConfig())
        self.steps: list[list[tuple[int, int]]] = []

    def init(self, model: Weights, fleet: Fleet) -> int:
        return 0

    def instruct(self, state: int, client: int, train: bool) -> Downlink:
        return Downlink({"model": Weights(ONE * state)})

    def update(self, state: int, arrivals: Sequence[Arrival]) -> int:
        self.steps.append([(a.client, a.staleness) for a in arrivals])
        return state + 1

    def expects(self) -> dict[str, Spec]:
        return {"delta": Spec((1,), role="update", buffers=0)}

    @property
    def who(self) -> list[list[int]]:
        return [[client for client, _ in step] for step in self.steps]


class Messenger:
    """Delivers in reverse order, as a busy machine might; `answer` decides what a job brings."""

    def __init__(self, answer: Callable[[Job], Answer | Failure]) -> None:
        self.answer, self.jobs, self.out = answer, list[Job](), list[Job]()

    def send(self, jobs: Sequence[Job]) -> list[Failure]:
        for job in jobs:
            assert not any(o.client == job.client and o.train == job.train for o in self.out), "two jobs of one kind"
        self.jobs += jobs
        self.out += jobs
        return []

    def receive(self, timeout: float | None = None) -> list[Answer | Failure]:
        return [self.answer(self.out.pop())]


def good(job: Job) -> Answer:
    uplink = Uplink(1, {"delta": Weights(ONE)}) if job.train else None

    def measured(asked: bool, accuracy: float) -> dict[str, float] | None:
        return {"accuracy": accuracy, "loss": 1 - accuracy} if asked else None

    asked = measured(job.test_received, 0.5), measured(job.test_personal, 0.25), measured(job.test_local, 0.75)
    return Answer(job, uplink, Report(*asked))


@dataclass
class Ran:
    server: Counter
    messenger: Messenger
    record: Record
    clock: VirtualClock


def run(
    answer: Callable[[Job], Answer | Failure] = good,
    delays: Stragglers | None = None,
    server: Counter | None = None,
    **keys: object,
) -> Ran:
    config = parse({"stragglers": "none", **{k.replace("_", "-"): str(v) for k, v in keys.items()}})
    pace, stragglers = pace_and_stragglers(config)
    server, messenger, everyone = server or Counter(), Messenger(answer), fleet(config.clients)
    record = Record(None, config, "test")
    record.begin(everyone)
    clock = VirtualClock(messenger)
    Loop(server, everyone, pace, clock, delays or stragglers, config, record).run(0)
    return Ran(server, messenger, record, clock)


def test_everyone_in_client_order_whatever_the_machine_does() -> None:
    ran = run(clients=3, rounds=2)
    assert ran.server.who == [[0, 1, 2], [0, 1, 2]]
    received = [float(job.down.model.parameters[0]) for job in ran.messenger.jobs if job.train]
    assert received == [0, 0, 0, 1, 1, 1]
    assert ran.clock.now == 2.0


def test_participation_samples_and_the_rest_is_still_evaluated() -> None:
    ran = run(clients=10, rounds=3, participation=0.3)
    assert [len(step) for step in ran.server.who] == [3, 3, 3]
    assert len({tuple(step) for step in ran.server.who}) > 1
    tested = [job.client for job in ran.messenger.jobs if job.step == 1 and job.test_received]
    assert sorted(tested) == list(range(10))
    assert [number for number, _ in ran.record.curves["global"].points] == [0, 1, 2, 3]


def test_eval_every_counts_from_the_start_and_always_ends_with_one() -> None:
    ran = run(clients=2, rounds=5, eval_every=2)
    assert [number for number, _ in ran.record.curves["personal"].points] == [0, 2, 4, 5]
    assert [number for number, _ in ran.record.curves["local"].points] == [2, 4, 5]
    assert ran.record.summary()["accuracy"]["local"]["final"] == 0.75
    assert len([job for job in ran.messenger.jobs if job.train]) == 10


def test_without_rounds_every_local_model_is_tested() -> None:
    """Client 0 is sent a job in every second step only, never in the one before an evaluation."""
    ran = run(clients=2, rounds=6, eval_every=2, pace="window", stragglers="periodic", **{"stragglers.count": 1})
    assert ran.record.summary()["accuracy"]["local"]["per_client"] == [0.75, 0.75]


class ServerMade(Counter):
    """A strategy whose server makes every client's personal model."""

    def instruct(self, state: int, client: int, train: bool) -> Downlink:
        return Downlink({"model": Weights(ONE * state), "personal": Weights(ONE)})


@pytest.mark.parametrize(("server", "tested"), [(ServerMade, [0, 1, 2]), (Counter, [1, 2])])
def test_a_busy_client_is_tested_on_a_personal_model_that_the_server_made(
    server: type[Counter], tested: list[int]
) -> None:
    """Client 0 takes two rounds: it is busy after round 1. What depends on its own state cannot be tested then."""
    ran = run(server=server(), clients=3, rounds=2, pace="window", stragglers="periodic", **{"stragglers.count": 1})
    jobs = [job for job in ran.messenger.jobs if not job.train and job.step == 1]
    assert [job.client for job in jobs] == [0, 1, 2]
    assert [job.client for job in jobs if job.test_personal] == tested


def test_a_failed_client_is_named_and_the_round_goes_on() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "out of memory") if job.client == 1 and job.train else good(job)

    ran = run(answer, clients=3, rounds=2)
    assert ran.server.who == [[0, 2], [0, 2]]
    assert ran.record.failures == [{"client": 1, "round": r, "reason": "out of memory"} for r in (1, 2)]


def test_a_client_that_is_refused_again_and_again_gets_no_more_jobs() -> None:
    def answer(job: Job) -> Answer | Failure:
        lies = job.client == 1 or (job.client == 2 and job.step % 2)
        return Failure(job, "its reply was refused: a lie", refused=True) if job.train and lies else good(job)

    ran = run(answer, clients=4, rounds=6, refusals=2, eval_every=6)
    assert ran.server.who == [[0, 2, 3], [0, 3]] + [[0, 2, 3], [0, 3]] * 2
    assert [job.step for job in ran.messenger.jobs if job.client == 1 and job.train] == [0, 1]
    (benched,) = [row for row in ran.record.failures if not row.get("refused")]
    assert (benched["client"], benched["round"]) == (1, 2)
    assert benched["reason"] == "gets no more jobs: 2 of its answers in a row were refused"
    assert ran.record.summary()["refusals"] == {"count": 5, "per_client": {"1": 2, "2": 3}, "benched": [1]}
    kept = run(answer, clients=4, rounds=6, refusals=0)
    assert kept.record.summary()["refusals"]["benched"] == []
    assert [job.step for job in kept.messenger.jobs if job.client == 1 and job.train] == list(range(6))


def test_when_everybody_lies_the_run_ends_and_says_so() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "its reply was refused: a lie", refused=True)

    for pace in ("synchronous", "buffered"):
        with pytest.raises(
            FedsimError, match=r"round 1 got no result from any client\. client 0: its reply was refused"
        ):
            run(answer, clients=3, rounds=3, pace=pace, refusals=1)


def test_an_update_that_is_not_finite_ends_the_run() -> None:
    class Explodes(Counter):
        def update(self, state: int, arrivals: Sequence[Arrival]) -> int:
            self.steps.append([(a.client, a.staleness) for a in arrivals])
            return GlobalState(Weights(ONE * (np.inf if len(self.steps) == 2 else 1)))  # type: ignore[return-value]

        def instruct(self, state: object, client: int, train: bool) -> Downlink:
            return Downlink({"model": Weights(ONE)})

    server = Explodes()
    with pytest.raises(
        FedsimError, match=r"round 2: the update of fedavg made model.parameters NaN or infinite, .* 0, 1\."
    ):
        run(server=server, clients=2, rounds=3)
    assert len(server.steps) == 2


def test_a_lost_client_is_not_asked_again() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "gone", offline=True) if job.client == 0 else good(job)

    ran = run(answer, clients=3, rounds=3)
    assert ran.server.who == [[1, 2]] * 3
    assert [job.step for job in ran.messenger.jobs if job.client == 0] == [0]


def test_a_round_in_which_everybody_fails_ends_the_run() -> None:
    with pytest.raises(FedsimError, match=r"round 1 got no result from any client\. client 0: no memory; client 1"):
        run(lambda job: Failure(job, "no memory"), clients=2, rounds=3)


def test_a_run_without_rounds_ends_when_everybody_has_failed() -> None:
    def answer(job: Job) -> Answer | Failure:
        return Failure(job, "refused") if job.step == 3 or job.client == 2 else good(job)

    with pytest.raises(FedsimError, match=r"round 4 got no result from any client\. client \d: refused; client"):
        run(answer, clients=3, participation=0.7, rounds=9, pace="buffered")


def test_a_run_whose_clients_are_all_gone_ends() -> None:
    with pytest.raises(FedsimError, match="round 1 got no result from any client"):
        run(lambda job: Failure(job, "gone", offline=True), clients=2, rounds=3)


class DropsOut(Stragglers):
    """Client 0's first job is lost, and it is absent for 2.5 seconds."""

    def __init__(self) -> None:
        super().__init__(None, RunConfig())

    def delay(self, job: JobProfile) -> float:
        return 0.0

    def simulated_delay(self, job: JobProfile) -> SimulatedDelay:
        return SimulatedDelay(0.5, 0.5, 2.5) if job.client == 0 and job.now == 0 else SimulatedDelay(1.0)


def test_a_client_that_drops_out_is_missed_until_it_is_back() -> None:
    ran = run(delays=DropsOut(), clients=3, rounds=5)
    assert ran.server.who == [[1, 2], [1, 2], [1, 2], [0, 1, 2], [0, 1, 2]]
    assert ran.record.failures == [{"client": 0, "round": 1, "reason": "dropped out"}]


def test_when_nobody_is_there_the_server_waits_for_a_return() -> None:
    ran = run(delays=DropsOut(), clients=1, rounds=2)
    assert ran.server.who == [[0], [0]]
    assert ran.clock.now == 5.0  # lost at 0.5, back at 3, then two rounds


def test_the_virtual_clock_orders_by_finish_time_then_client() -> None:
    clock = VirtualClock(Messenger(good))
    durations = {0: 5.0, 1: 2.0, 2: 2.0}
    clock.send([Job(c, 0, Downlink(), simulated_delay=SimulatedDelay(durations[c])) for c in (0, 2, 1)])
    assert not clock.due
    events = [clock.next(None) for _ in range(3)]
    assert [(e.result.job.client, e.sent, e.arrived) for e in events if e] == [(1, 0, 2), (2, 0, 2), (0, 0, 5)]
    assert (clock.now, clock.next(None)) == (5.0, None)


def test_the_virtual_clock_stops_at_a_deadline() -> None:
    clock = VirtualClock(Messenger(good))
    clock.send([Job(0, 0, Downlink(), simulated_delay=SimulatedDelay(5.0))])
    assert clock.next(3.0) is None
    assert clock.now == 3.0
    assert clock.next(None) is not None
    assert clock.now == 5.0


def test_evaluations_take_no_time_and_come_first() -> None:
    clock = VirtualClock(Messenger(good))
    clock.send([Job(0, 0, Downlink()), Job(5, 0, Downlink(), train=False)])
    first = clock.next(None)
    assert first is not None
    assert first.result.job.client == 5
    assert (clock.now, clock.evaluating) == (0.0, 0)


PACES = st.sampled_from(["synchronous", "deadline", "wait-fraction", "periodic", "window", "buffered"])
MODELS = st.sampled_from(["none", "uniform-rounds", "speed", "periodic", "trace"])


@given(PACES, MODELS, st.integers(1, 12), st.sampled_from([0.3, 1.0]), st.sampled_from([0.0, 0.3]), st.integers(0, 99))
def test_any_pace_under_any_delays(
    pace: str, model: str, clients: int, participation: float, dropout: float, seed: int
) -> None:
    """At most one job per client is out (the messenger asserts it), staleness is right, and time never goes back."""
    keys = {"stragglers.count": clients} if model == "periodic" else {}
    ran = run(
        clients=clients,
        rounds=6,
        pace=pace,
        participation=participation,
        seed=seed,
        eval_every=2,
        **{"stragglers": model, "stragglers.dropout": dropout, **keys},
    )
    assert len(ran.server.steps) == 6
    trained = [job for job in ran.messenger.jobs if job.train]
    assert all(float(job.down.model.parameters[0]) == job.step for job in trained)
    for number, step in enumerate(ran.server.steps):
        for client, staleness in step:
            assert any(job.client == client and job.step == number - staleness for job in trained)
        if pace in ("synchronous", "deadline", "wait-fraction"):
            assert {staleness for _, staleness in step} == {0}
    assert 0 < ran.clock.now < inf


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
            check_clients(found, 2)


def test_an_update_that_returns_nothing_is_named() -> None:
    class Forgetful(Counter):
        def update(self, state: int, arrivals: Sequence[Arrival]) -> int:
            return None  # type: ignore[return-value]

    with pytest.raises(FedsimError, match="fedavg: update returned None instead of the next state"):
        run(server=Forgetful(), clients=2, rounds=1)
