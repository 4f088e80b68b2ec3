"""Per-FedAvg, pFedMe and FedUpdate on a linear model, beside their equations in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.clients.finetuning import personal_model
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.per_fedavg import PerFedAvgClient
from fedsim.clients.pfedme import PFedMeClient
from fedsim.clients.task import TorchTask
from fedsim.config import FineTuning, RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.strategies.fedupdate import FEDUPDATE
from fedsim.strategies.per_fedavg import PER_FEDAVG
from fedsim.strategies.pfedme import PFEDME
from fedsim.weights import Weights
from tests.equations.halves import arrival, server, started, vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


class World:
    """One client, and the gradient of its loss written out."""

    def __init__(self, small: Small, *keys: str) -> None:
        self.config = small("clients=1", "partition=iid", "lr=0.02", *keys)
        data = client_data(self.config, 0)
        self.task = TorchTask(self.config, data, data.classes)
        self.x = data.x_train.reshape(len(data.y_train), -1).astype(np.float64)
        self.hot = np.eye(data.classes)[data.y_train]
        self.start = np.random.default_rng(0).normal(0, 0.3, self.task.layout.size).astype(np.float32)
        self.down = Downlink({"model": Weights(self.start)})

    def gradient(self, w: Any, batch: Any = slice(None)) -> Any:
        """Of the mean cross entropy of a linear classifier over a batch; w holds its matrix, then its biases."""
        matrix, bias, x = w[:-10].reshape(10, -1), w[-10:], self.x[batch]
        logits = x @ matrix.T + bias
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        off = (chances - self.hot[batch]) / len(x)
        return np.concatenate([(off.T @ x).reshape(-1), off.sum(axis=0)])

    def trained(self, half: Any, state: ClientState | None = None) -> Any:
        uplink = half.train(self.task, self.down, state or ClientState(), np.random.default_rng(1))
        return self.start + uplink.weights["delta"].parameters


def test_first_order(small: Small) -> None:
    world = World(small, "batch-size=5000", "local-steps=2")
    w = world.start.astype(np.float64)
    for _ in range(2):
        w = w - 0.5 * world.gradient(w - 0.3 * world.gradient(w))  # (2), (3)
    got = world.trained(PerFedAvgClient(PER_FEDAVG.params(variant="fo", alpha=0.3, beta=0.5)))
    np.testing.assert_allclose(got, w, atol=2e-6)


def test_hessian_free(small: Small) -> None:
    world = World(small, "batch-size=5000", "local-steps=1")
    alpha, beta, delta, w = 0.3, 0.5, 0.01, world.start.astype(np.float64)
    q = world.gradient(w - alpha * world.gradient(w))
    along = (world.gradient(w + delta * q) - world.gradient(w - delta * q)) / (2 * delta)
    got = world.trained(PerFedAvgClient(PER_FEDAVG.params(variant="hf", alpha=alpha, beta=beta, delta=delta)))
    np.testing.assert_allclose(got, w - beta * (q - alpha * along), atol=2e-6)  # (4)
    assert np.abs(beta * alpha * along).max() > 1e-4  # the term is there


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_inner_and_outer_steps_take_independent_mini_batches(variant: str, small: Small) -> None:
    """D is the loop's own mini-batch, D' and D'' are further draws, in this order, from the same random stream."""
    world = World(small, "batch-size=16", "local-steps=3")
    alpha, beta, delta, w = 0.3, 0.5, 0.01, world.start.astype(np.float64)
    rng, count = np.random.default_rng(1), len(world.x)
    order = rng.permutation(count)
    for step in range(3):
        first, second = order[16 * step : 16 * (step + 1)], rng.choice(count, 16, replace=False)
        q = world.gradient(w - alpha * world.gradient(w, first), second)  # (2)
        if variant == "fo":
            w = w - beta * q  # (3)
        else:
            third = rng.choice(count, 16, replace=False)
            along = (world.gradient(w + delta * q, third) - world.gradient(w - delta * q, third)) / (2 * delta)
            w = w - beta * (q - alpha * along)  # (4)
    got = world.trained(PerFedAvgClient(PER_FEDAVG.params(variant=variant, alpha=alpha, beta=beta, delta=delta)))
    np.testing.assert_allclose(got, w, atol=1e-5)


def test_two_plain_steps_on_the_same_batch(small: Small) -> None:
    world = World(small, "batch-size=5000", "local-steps=2")
    w = world.start.astype(np.float64)
    for _ in range(4):
        w = w - 0.02 * world.gradient(w)
    half = PerFedAvgClient(PER_FEDAVG.params(variant="two-step"))
    np.testing.assert_allclose(world.trained(half), w, atol=2e-6)
    assert half.personalize(world.task, world.down, ClientState(), np.random.default_rng(0)) is world.down.model


@pytest.mark.parametrize(
    ("half", "tuning", "rate"),
    [
        (PerFedAvgClient(PER_FEDAVG.params(alpha=0.3, steps=2)), FineTuning(), 0.3),
        (LocalSGD(None), FEDUPDATE.finetune(FEDUPDATE.params(steps=2)), 0.02),
    ],
    ids=["per-fedavg", "fedupdate"],
)
def test_personal_models_are_a_few_steps_away(half: Any, tuning: FineTuning, rate: float, small: Small) -> None:
    world = World(small, "batch-size=5000")
    w = world.start.astype(np.float64)
    for _ in range(2):
        w = w - rate * world.gradient(w)
    got = personal_model(half, tuning, world.task, world.down, ClientState(), np.random.default_rng(0))
    assert isinstance(got, Weights)
    np.testing.assert_allclose(got.parameters, w, atol=2e-6)


def test_per_fedavg_learns_by_default_and_follows_the_learning_rate(small: Small, finished: Finished) -> None:
    def personal(*keys: str) -> Any:
        summary = finished(small("algorithm=per-fedavg", "rounds=5", *keys), name=" ".join(keys) or "default")
        return summary["accuracy"]["personal"]["final"], summary["weights_sha256"]

    accuracy, weights = personal()
    assert accuracy > 0.5
    assert personal("per-fedavg.beta=0.05") == (accuracy, weights)  # the default learning rate of a run
    assert personal("lr=0.0001")[0] < 0.3
    assert personal("lr=0.0001", "per-fedavg.beta=0.05") == (accuracy, weights)


def test_moreau_envelopes(small: Small) -> None:
    world, state = World(small, "batch-size=5000", "local-steps=3"), ClientState()
    w = theta = world.start.astype(np.float64)
    for _ in range(3):
        for _ in range(2):
            theta = theta - 0.05 * (world.gradient(theta) + 4 * (theta - w) + 0.1 * theta)
        w = w - 4 * 0.02 * (w - theta)
    half = PFedMeClient(PFEDME.params(lam=4.0, inner_steps=2, inner_lr=0.05, mu=0.1))
    first = half.personalize(world.task, world.down, state, np.random.default_rng(0))
    assert first is world.down.model
    np.testing.assert_allclose(world.trained(half, state), w, atol=2e-6)
    np.testing.assert_allclose(state.weights["personal"].parameters, theta, atol=2e-6)
    own = half.personalize(world.task, world.down, state, np.random.default_rng(0))
    assert own is state.weights["personal"]


def test_the_server_of_pfedme_mixes() -> None:
    strategy = server("pfedme", [10, 30], beta=2.0)
    state = started(strategy, 1, 1, 1, 1, 1)
    state = strategy.update(state, [arrival(0, 10, delta=vec(4, 0, 0, 0, 0)), arrival(1, 30, delta=vec(0, 4, 0, 0, 0))])
    assert state.model.parameters.tolist() == [3, 7, 1, 1, 1]  # twice the mean update (1, 3, 0, 0, 0)


def test_rates_that_diverge_are_refused() -> None:
    with pytest.raises(ConfigError, match="from 2 on theta diverges"):
        PFEDME.params(lam=15.0, inner_lr=0.2)
    with pytest.raises(ConfigError, match="from 2 on the local copies diverge"):
        server("pfedme", [1], lam=200.0, inner_lr=0.001)


def test_fedupdate_trains_as_fedavg(small: Small, finished: Finished) -> None:
    plain, updated = (finished(small(f"algorithm={name}"), name=name) for name in ("fedavg", "fedupdate"))
    assert updated["weights_sha256"] == plain["weights_sha256"]
    assert updated["accuracy"]["personal"] != plain["accuracy"]["personal"]
