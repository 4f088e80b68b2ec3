"""FedAsync, FedBuff, TWAFL and stale FedAvg against numbers worked by hand."""

import re
from math import e
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithm import GlobalState
from fedsim.clients.twafl import LayerWise
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Answer, Arrival, ClientState, Downlink, Failure, Job, Report, RunIdentity
from fedsim.results import checkpoint as checkpoints
from fedsim.strategies import fedasync
from fedsim.strategies.staleness import discount
from fedsim.transport import wire
from fedsim.transport.answer_check import AnswerCheck
from fedsim.weights import Weights
from tests.equations import halves
from tests.equations.halves import LAYOUT, SMALL, started, vec
from tests.quadratics import Federation


def server(name: str, count: int = 3, **params: object) -> Any:
    """A server half with clients of 10, 20, ... samples and a model of 2 shallow values and 1 deep value."""
    return halves.server(name, [10 * (i + 1) for i in range(count)], SMALL, **params)


def arrival(client: int, step: int, staleness: int, **vectors: Any) -> Arrival:
    return halves.arrival(client, 10 * (client + 1), step, staleness, **vectors)  # as many samples as its client has


def test_discounts_by_hand() -> None:
    assert discount("polynomial", 3, 0.5, 0) == 0.5
    assert discount("constant", 99, 0.5, 0) == 1
    assert [discount("hinge", u, 10, 4) for u in (0, 4, 5, 6)] == [1, 1, 1 / 11, 1 / 21]


def test_a_stale_model_is_averaged_as_if_it_were_fresh() -> None:
    strategy = server("fedavg", 2)
    strategy.fleet.busy[0] = 0  # client 0 works on the first model
    state = strategy.update(started(strategy, 1, 1, 1), [arrival(1, 0, 0, delta=vec(2, 2, 2))])
    assert state.model.parameters.tolist() == [3, 3, 3]
    assert list(state.history) == [0]
    del strategy.fleet.busy[0]
    both = [arrival(0, 0, 1, delta=vec(5, 5, 5)), arrival(1, 1, 0, delta=vec(0, 0, 0))]
    state = strategy.update(state, both)
    # models 1 + 5 = 6 of 10 samples, and 3 of 20 samples
    assert state.model.parameters == pytest.approx([4, 4, 4])
    assert state.history == {}


def test_fedasync_replaces_when_alpha_is_one() -> None:
    strategy = server("fedasync", alpha=1.0, discount="constant")
    state = strategy.update(started(strategy, 1, 1, 1), [arrival(0, 0, 0, delta=vec(6, 7, 8))])
    assert state.model.parameters.tolist() == [7, 8, 9]


def behind(*values: float, versions: int = 3) -> fedasync.State:
    """After 3 steps that made so many versions, while a client still trains from the first model, which is zero."""
    return fedasync.State(Weights(vec(*values)), 3, {0: vec(0, 0, 0)}, versions, {0: 0})


def test_fedasync_sequential_by_hand() -> None:
    strategy = server("fedasync", alpha=0.5, a=0.5)
    two = [arrival(0, 3, 0, delta=vec(4, 4, 4)), arrival(1, 0, 3, delta=vec(2, 2, 2))]
    # fresh: 0.5*4 + 0.5*8 = 6. Three versions late: alpha 0.5 * (3+1)^-0.5 = 0.25: 0.75*4 + 0.25*2 = 3.5
    assert strategy.update(behind(4, 4, 4), two[:1]).model.parameters.tolist() == [6, 6, 6]
    assert strategy.update(behind(4, 4, 4), two[1:]).model.parameters.tolist() == [3.5, 3.5, 3.5]
    # after the fresh one it is four versions late
    weight, state = 0.5 * (4 + 1) ** -0.5, strategy.update(behind(4, 4, 4), two)
    assert state.model.parameters == pytest.approx([(1 - weight) * 6 + weight * 2] * 3)
    assert (state.step, state.version) == (4, 5)


def test_fedasync_counts_the_versions_that_earlier_steps_made() -> None:
    strategy = server("fedasync", alpha=0.5, discount="hinge", a=1.0, b=2.0)
    strategy.fleet.busy[2] = 0
    state = started(strategy, 0, 0, 0)
    zero = vec(0, 0, 0)
    state = strategy.update(state, [arrival(client, 0, 0, delta=zero) for client in (0, 1)])
    assert (state.version, state.versions) == (2, {0: 0})
    state = checkpoints.undump(checkpoints.dump(state), (fedasync.State,))
    strategy.fleet.busy[1] = 1
    state = strategy.update(state, [arrival(0, 1, 0, delta=zero)])
    assert (state.version, state.versions) == (3, {0: 0, 1: 2})
    strategy.fleet.busy.clear()
    state = strategy.update(state, [arrival(2, 0, 2, delta=vec(8, 8, 8))])
    # two steps, but three versions late: one beyond the hinge, 0.5 * 1 / (1 * (3 - 2) + 1)
    assert state.model.parameters.tolist() == [2, 2, 2]
    assert (state.version, state.versions) == (4, {})


def test_fedasync_round_by_hand() -> None:
    strategy = server("fedasync", alpha=0.8, a=0.5, mode="round")
    two = [arrival(0, 3, 0, delta=vec(4, 4, 4)), arrival(1, 0, 3, delta=vec(1, 1, 1))]
    # fresh: 8, as it is. Stale: 0.8 * 0.5 = 0.4: 0.4*1 + 0.6*4 = 2.8. Mean by 10 and 20 samples.
    state = strategy.update(behind(4, 4, 4), two)
    assert state.model.parameters == pytest.approx([(8 + 2 * 2.8) / 3] * 3)
    assert (state.step, state.version) == (4, 4)  # a round is one version, whoever arrived


@pytest.mark.parametrize("mode", ["sequential", "round"])
def test_fedasync_treats_buffers_as_parameters(mode: str) -> None:
    layout = Layout(SMALL.parameters, (Tensor("norm.mean", (3,), "norm"),))
    strategy = halves.server("fedasync", [10, 20, 30], layout, alpha=0.5, mode=mode)
    strategy.fleet.busy[2] = 0
    state = started(strategy, 0, 0, 0, buffers=[0, 0, 0])
    rng = np.random.default_rng(0)
    for step in range(2):
        models = rng.normal(size=(2, 3)).astype(np.float32)
        state = strategy.update(
            state,
            [arrival(c, step, 0, delta=x - state.model.parameters, buffers=x) for c, x in enumerate(models)],
        )
    last = arrival(2, 0, 2, delta=vec(5, 6, 7), buffers=vec(5, 6, 7))
    state = strategy.update(state, [last, arrival(0, 2, 0, delta=1 - state.model.parameters, buffers=vec(1, 1, 1))])
    np.testing.assert_allclose(state.model.buffers, state.model.parameters, rtol=1e-5)


def test_fedasyncs_clients_are_held_near_what_they_received() -> None:
    a, b, rho, lr = np.array([[1.0, 4.0], [3.0, 0.2]]), np.array([[2.0, -1.0], [-3.0, 5.0]]), 2.0, 0.1
    federation = Federation("fedasync", a, b, local_steps=4, lr=lr, rho=rho, alpha=0.5, discount="constant")
    w = np.zeros(2)
    for _ in range(3):
        received = w
        for i in range(2):
            x = received
            for _ in range(4):
                x = x - lr * (a[i] * (x - b[i]) + rho * (x - received))  # (1)
            w = 0.5 * w + 0.5 * x  # (2)
        np.testing.assert_allclose(federation.round().model.parameters, w, rtol=1e-5)


def test_fedbuff_by_hand() -> None:
    strategy = server("fedbuff", eta=2.0)
    state = GlobalState(Weights(vec(1, 1, 1)), 3, {0: vec(0, 0, 0)})
    two = [arrival(0, 3, 0, delta=vec(1, 1, 1)), arrival(1, 0, 3, delta=vec(4, 4, 4))]
    # 1 + 2 * 1/2 * (1*1 + 0.5*4)
    assert strategy.update(state, two).model.parameters.tolist() == [4, 4, 4]


def test_twafl_weighs_by_age_and_sums_to_one() -> None:
    strategy = server("twafl", 2, base=2.0, loop=2, deep_rounds=1)
    state = started(strategy, 0, 0, 0)
    state = strategy.update(state, [arrival(0, 0, 0, shallow=vec(3, 3)), arrival(1, 0, 0, shallow=vec(6, 6))])
    assert state.theta.tolist() == [5, 5, 0]  # by 10 and 20 samples; no deep part arrived
    state = strategy.update(state, [arrival(0, 1, 0, shallow=vec(8, 8), deep=vec(7))])
    # client 0: weight 10, fresh. Client 1: weight 20 / 2, one step old. Deep: only client 0.
    assert state.theta.tolist() == [7, 7, 7]


def test_twafl_exchanges_the_deep_part_seldom() -> None:
    strategy = server("twafl", 2, loop=3, deep_rounds=1)
    state = started(strategy, 1, 2, 3)
    sent = []
    for step in range(6):
        state.step = step
        sent.append(sorted(strategy.instruct(state, 0, train=True).weights))
    assert sent == [["shallow"], ["shallow"], ["model"]] * 2
    assert strategy.params.base == e / 2


def test_twafl_refuses_what_does_not_fit() -> None:
    strategy = server("twafl", deep_stages=("tail",))
    with pytest.raises(
        ConfigError,
        match=r"unknown part of the model 'tail'.*Choices: all, base, batch-norm, buffers, head, norm, vectors$",
    ):
        started(strategy, 0, 0, 0)


def test_twafl_refuses_a_deep_part_of_another_length() -> None:
    InlineGrid(RunConfig())  # Flower makes messages on behalf of a task
    strategy, job = server("twafl"), Job(0, 0, Downlink())
    order = wire.pack_job(job, 9, RunIdentity("ab"), 10, 60, wire.Encoder())

    def received(**parts: Any) -> Answer | Failure:
        uplink = arrival(0, 0, 0, **parts).uplink
        return wire.unpack_answer(
            wire.pack_answer(Answer(job, uplink, Report()), order), job, AnswerCheck(strategy.expects())
        )

    assert isinstance(received(shallow=vec(1, 1)), Answer)
    assert isinstance(received(shallow=vec(1, 1), deep=vec(1)), Answer)
    for parts, words in (
        ({"shallow": vec(1, 1), "deep": vec(1, 1)}, r"'deep' has shape \(2,\) where \(1,\) was expected"),
        ({"deep": vec(1)}, "'shallow' is missing"),
    ):
        refused = received(**parts)
        assert isinstance(refused, Failure)
        assert re.search(words, refused.reason)


def test_twafl_at_the_end_a_client_uses_its_own_deep_part() -> None:
    """The whole global model is sent for its own test; the personal model is as in the rounds before."""
    strategy = halves.server("twafl", [10, 20], LAYOUT, loop=4, deep_rounds=1)
    strategy.config = strategy.config.replace(rounds=1)
    state = started(strategy, 1, 2, 3, 4, 5)
    client, kept = LayerWise(strategy.params), ClientState()
    kept.weights["deep"] = Weights(vec(8, 9))
    task = SimpleNamespace(layout=LAYOUT, initial=lambda: Weights(vec(0, 0, 0, 0, 0)))

    def personal() -> list[float]:
        down = strategy.instruct(state, 0, train=False)
        found: list[float] = client.personalize(task, down, kept, np.random.default_rng(0)).parameters.tolist()
        return found

    assert personal() == [1, 2, 3, 8, 9]
    state.step = 1  # the run is over
    assert strategy.instruct(state, 0, train=False).model.parameters.tolist() == [1, 2, 3, 4, 5]
    assert personal() == [1, 2, 3, 8, 9]
    state.step = 3  # the deep part is exchanged
    assert personal() == [1, 2, 3, 4, 5]
