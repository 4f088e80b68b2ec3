"""FedFomo: improvements and combinations by hand, who is offered what, and its limit, local training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.fedfomo import combined, improvements
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.weights import Weights
from tests.equations.halves import SMALL, params_of, server, started, vec
from tests.quadratics import Federation

Small = Callable[..., RunConfig]


def test_improvements_per_distance_and_the_combination() -> None:
    """L(o) = 1, L = (0.5, 0.8, 1.2), distances (1, 0.5, 2): r = (0.5, 0.4, -0.1), a = (5/9, 4/9, 0)."""
    losses = {0.0: 1.0, 1.0: 0.5, 0.5: 0.8, 2.0: 1.2}
    before, models = Weights(vec(0, 0)), {3: Weights(vec(1, 0)), 1: Weights(vec(0, 0.5)), 0: Weights(vec(0, 2))}
    gains = improvements(before, models, lambda model: losses[float(model.parameters.sum())])
    assert gains == pytest.approx({3: 0.5, 1: 0.4, 0: -0.1})
    assert combined(before, models, gains).parameters.tolist() == pytest.approx([5 / 9, 4 / 9 * 0.5])
    assert combined(before, models, {3: -1.0, 1: 0.0, 0: -0.1}) is before
    assert improvements(before, {2: Weights(vec(0, 0))}, lambda model: 1.0) == {2: 0.0}
    assert improvements(before, {2: Weights(vec(9, 9))}, lambda model: np.inf if model.parameters.any() else 1.0) == {
        2: 0.0
    }


def test_buffers_are_combined_as_parameters_are() -> None:
    models = {0: Weights(vec(1), vec(4)), 1: Weights(vec(2), vec(8))}
    found = combined(Weights(vec(0), vec(0)), models, {0: 1.0, 1: 3.0})
    assert (found.parameters.tolist(), found.buffers.tolist()) == ([1.75], [7.0])


def sent(client: int, gains: list[float], *model: float) -> Arrival:
    uplink = Uplink(1, {"model": Weights(vec(*model))}, {"gains": vec(*gains)})
    return Arrival(client, 0, uplink, 0.0, 1.0)


def peers(half: Any, state: Any, client: int) -> list[str]:
    return list(half.instruct(state, client, train=True).weights)


def test_affinities_add_up_and_choose_who_is_offered() -> None:
    half = server("fedfomo", [1] * 4, SMALL, models=3, explore=0.0)
    state = started(half, 0, 0, 0)
    assert peers(half, state, 0) == []  # nobody has sent a model: the first round is local
    state = half.update(state, [sent(0, [0, 0, 0, 0], 1, 1, 1), sent(2, [0, 0, 0, 0], 2, 2, 2)])
    assert peers(half, state, 0) == ["peer-2"]  # neither its own nor models that were never sent
    assert peers(half, state, 2) == ["peer-0"]
    assert not state.affinity.any()
    state = half.update(state, [sent(1, [0, 0, 0, 0], 3, 3, 3), sent(3, [0, 0, 0, 0], 4, 4, 4)])
    state = half.update(state, [sent(0, [0.5, 0.4, -0.1, 0], 1, 1, 1)])
    np.testing.assert_allclose(state.affinity[0], [0.625, 0.5, -0.125, 0], rtol=1e-6)  # (4): r / 0.8
    assert peers(half, state, 0) == ["peer-1", "peer-3"]  # unknown models come before those that made it worse
    state = half.update(state, [sent(0, [0, -0.6, 0.2, 0], 1, 1, 1)])  # |sum r| = 0.4
    np.testing.assert_allclose(state.affinity[0], [0.625, -1, 0.375, 0], rtol=1e-6)
    assert peers(half, state, 0) == ["peer-2", "peer-3"]
    assert half.matrices(state)["affinity"] is state.affinity
    down = half.instruct(state, 0, train=True)
    assert down.weights["peer-2"].parameters.tolist() == [2, 2, 2]
    state.affinity[1, 2] = 1
    assert half.instruct(state, 1, train=True).weights["peer-2"] is down.weights["peer-2"]  # copied once by engines
    assert half.instruct(state, 0, train=False).nbytes == 0


def test_random_models_are_offered_less_and_less() -> None:
    half = server("fedfomo", [1] * 6, SMALL, models=3, explore=1.0, explore_decay=0.5)
    state = started(half, 0, 0, 0)
    state.received[:] = True
    state.affinity[0] = [0, 5, 4, 3, 2, 1]
    chosen = [frozenset(peers(half, state, 0))]
    for seed in range(1, 8):
        half.config = half.config.replace(seed=seed)
        chosen.append(frozenset(peers(half, state, 0)))
    assert len(set(chosen)) > 3
    assert all(len(names) == 2 and "peer-0" not in names for names in chosen)
    state.step = 2  # 1 - 2 * 0.5
    assert peers(half, state, 0) == ["peer-1", "peer-2"]


def test_with_its_own_model_alone_it_is_local_training_bitwise() -> None:
    a, b = [[1.0, 2.0], [3.0, 1.0]], [[1.0, -1.0], [2.0, 0.5]]
    ours, local = (
        Federation(name, a, b, local_steps=2, lr=0.1, **params)
        for name, params in (("fedfomo", {"models": 1}), ("local", {}))
    )
    for _ in range(4):
        ours.round()
        local.round()
        for mine, theirs in zip(ours.states, local.states, strict=True):
            assert np.array_equal(mine.weights["trained"].parameters, theirs.weights["model"].parameters)
    assert (ours.state.affinity == 3 * np.eye(2)).all()


def test_a_client_whose_peer_is_better_starts_there() -> None:
    """Client 1 trains little: the model of client 0, which has the same function, improves more per distance."""
    run = Federation("fedfomo", [[1.0], [1.0]], [[1.0], [1.0]], local_steps=1, lr=0.5)
    run.round()
    run.server.store(run.state.models, [sent(0, [], 1.0)])
    gains = run.train(1).arrays["gains"]  # L(0) = 0.5, own 0.5: (0.5 - 0.125) / 0.5, peer 1: 0.5 / 1
    assert gains.tolist() == pytest.approx([0.5, 0.75])
    assert run.personal(1).tolist() == pytest.approx([0.4 * 1 + 0.6 * 0.5])


def test_a_job_trains_without_the_validation_samples_and_keeps_its_start(small: Small) -> None:
    config = small("algorithm=fedfomo", "local-steps=2")
    task = TorchTask(config, client_data(config, 1), 10, 1)
    half = registry.load(registry.find("algorithm", "fedfomo").client)(params_of("fedfomo"))
    state, down = ClientState(), Downlink(numbers={"row": 1}, shared=False)
    uplink = half.train(task, down, state, np.random.default_rng(0))
    rest, loss = task.held_out(0.2)
    by_hand = rest.fit(task.initial(), np.random.default_rng(0)).weights
    assert np.array_equal(uplink.weights["model"].parameters, by_hand.parameters)
    assert uplink.examples == rest.examples == task.examples - round(0.2 * task.examples)
    assert np.array_equal(state.weights["start"].parameters, task.initial().parameters)
    second = half.train(task, down, state, np.random.default_rng(1))
    distance = np.linalg.norm((by_hand.parameters - task.initial().parameters).astype(np.float64))
    assert second.arrays["gains"][1] == pytest.approx((loss(task.initial()) - loss(by_hand)) / distance, rel=1e-5)
    assert np.array_equal(half.personalize(task, down, state, np.random.default_rng(0)).parameters, by_hand.parameters)


def test_batches_in_order_go_on_in_the_next_job(small: Small) -> None:
    config = small("algorithm=fedfomo", "batches=in-order", "local-steps=3")
    task = TorchTask(config, client_data(config, 0), 10)
    half = registry.load(registry.find("algorithm", "fedfomo").client)(params_of("fedfomo"))
    half.train(task, Downlink(numbers={"row": 0}), ClientState(), np.random.default_rng(0))
    assert task.batches_read == 3


def test_shares_that_leave_nothing_are_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fedfomo.validation must be above 0 and below 1"):
        small("algorithm=fedfomo", "fedfomo.validation=1")


def test_buffers_travel_with_the_models() -> None:
    layout = Layout((Tensor("head.w", (2,), "head"),), (Tensor("head.mean", (1,), "head"),))
    half = server("fedfomo", [1, 1], layout)
    state = started(half, 0, 0, buffers=[1])
    uplink = Uplink(1, {"model": Weights(vec(2, 3), vec(4))}, {"gains": vec(0, 0)})
    state = half.update(state, [Arrival(1, 0, uplink, 0.0, 1.0)])
    peer = half.instruct(state, 0, train=True).weights["peer-1"]
    assert (peer.parameters.tolist(), peer.buffers.tolist()) == ([2, 3], [4])
    assert half.expects()["model"].buffers == 1
