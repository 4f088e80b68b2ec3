"""Ditto: the personal model follows its own equation, and the global one never notices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights
from tests.quadratics import Federation

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("lam", [0, 0.5, 3])
@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_the_global_model_is_fedavgs_bitwise(lam: float, model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "momentum=0.5", "local-steps=3", "participation=0.5")
    ours = finished(small("algorithm=ditto", f"ditto.lam={lam}", *keys), name="ditto")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert ours["metrics"]["loss"]["global"] == fedavg["metrics"]["loss"]["global"]


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_a_pull_the_personal_model_is_local_training(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "rounds=3", "local-steps=3", "momentum=0.5")
    ours = finished(small("algorithm=ditto", "ditto.lam=0", *keys), name="ditto")
    local = finished(small("algorithm=local", *keys), name="local")
    assert ours["metrics"]["loss"]["personal"] == local["metrics"]["loss"]["personal"]


def test_the_pull_is_towards_the_received_model_and_part_of_the_gradient(small: Small) -> None:
    """Without data gradients (lr 0.1, lambda 1) v - w shrinks by 0.9 per step: with momentum 0.5 as heavy-ball does."""
    config = small("algorithm=ditto", "model=mlr", "inputs=raw", "lr=0.1", "momentum=0.5", "local-steps=3")
    task = TorchTask(config, client_data(config, 0), 10)
    half = registry.load(registry.find("algorithm", "ditto").client)(config.params("ditto"))
    zeros = Weights(np.zeros(task.layout.size, np.float32))
    state = ClientState({"own": Weights(np.ones(task.layout.size, np.float32))})
    received = Downlink({"model": zeros})
    half.train(task, received, state, np.random.default_rng(0))
    pulled = state.weights["own"].parameters
    flat = registry.load(registry.find("algorithm", "ditto").client)(type(config.params("ditto"))(lam=0.0))
    alone = ClientState({"own": Weights(np.ones(task.layout.size, np.float32))})
    flat.train(task, received, alone, np.random.default_rng(0))
    head_bias = slice(task.layout.size - 10, None)
    v, velocity = 1.0, 0.0
    for step in range(3):  # pixels that are always 0 have no data gradient
        velocity = (0.5 * velocity if step else 0.0) + v
        v -= 0.1 * velocity
    blank = np.flatnonzero(alone.weights["own"].parameters == 1)
    assert blank.size > 10
    np.testing.assert_allclose(pulled[blank], v, rtol=1e-5)
    assert not np.allclose(pulled[head_bias], alone.weights["own"].parameters[head_bias])


def test_a_newcomer_starts_at_the_received_model_and_absentees_do_not_move(small: Small) -> None:
    config = small("algorithm=ditto", "model=mlr", "local-steps=1")
    task = TorchTask(config, client_data(config, 1), 10)
    half = registry.load(registry.find("algorithm", "ditto").client)(config.params("ditto"))
    received, state = Weights(np.full(task.layout.size, 0.25, np.float32)), ClientState()
    assert half.personalize(task, Downlink({"model": received}), state, np.random.default_rng(0)) is received
    uplink = half.train(task, Downlink({"model": received}), state, np.random.default_rng(0))
    plain = task.fit(received, np.random.default_rng(0)).weights  # at the anchor the first pull is zero
    assert np.array_equal(state.weights["own"].parameters, plain.parameters)
    assert uplink.local is state.weights["own"]
    other = Downlink({"model": Weights(received.parameters + 1)})
    assert half.personalize(task, other, state, np.random.default_rng(0)) is state.weights["own"]


@pytest.mark.parametrize(("lam", "optimum"), [(1.0, 0.5), (3.0, 0.25), (0.0, 1.0)])
def test_the_personal_model_ends_between_its_own_optimum_and_the_global_model(lam: float, optimum: float) -> None:
    """f = (v - 1)^2 / 2 and w = 0 during the job: v -> (1 + lambda w) / (1 + lambda)."""
    federation = Federation("ditto", [[1.0]], [[1.0]], local_steps=200, lr=0.1, lam=lam)
    federation.train(0)
    assert federation.states[0].weights["own"].parameters == pytest.approx([optimum], abs=1e-5)
