"""Per-FedAvg, pFedMe and FedUpdate on a linear model and whole-data batches, beside their equations in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clients.fine_tuning import Updated
from clients.meta import Meta
from clients.moreau import Moreau
from clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Downlink, Memory
from partitions.silo import client_data
from strategies.fedupdate import FEDUPDATE
from strategies.per_fedavg import PER_FEDAVG
from strategies.pfedme import PFEDME
from tests.equations.halves import arrival, server, vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


class World:
    """One client with all its data in every batch, and the gradient of its loss written out."""

    def __init__(self, small: Small, *keys: str) -> None:
        self.config = small("clients=1", "partition=iid", "batch-size=5000", "lr=0.02", *keys)
        data = client_data(self.config, 0)
        self.task = TorchTask(self.config, data, data.classes)
        self.x = data.x_train.reshape(len(data.y_train), -1).astype(np.float64)
        self.hot = np.eye(data.classes)[data.y_train]
        self.start = np.random.default_rng(0).normal(0, 0.3, self.task.layout.size).astype(np.float32)
        self.down = Downlink({"model": self.start})

    def gradient(self, w: Any) -> Any:
        """Of the mean cross entropy of a linear classifier; w holds its matrix, then its biases."""
        matrix, bias = w[:-10].reshape(10, -1), w[-10:]
        logits = self.x @ matrix.T + bias
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        off = (chances - self.hot) / len(self.x)
        return np.concatenate([(off.T @ self.x).reshape(-1), off.sum(axis=0)])

    def trained(self, half: Any, memory: Memory | None = None) -> Any:
        uplink = half.train(self.task, self.down, memory or Memory(), np.random.default_rng(1))
        return self.start + uplink.vectors["delta"]


def test_first_order(small: Small) -> None:
    world = World(small, "local-steps=2")
    w = world.start.astype(np.float64)
    for _ in range(2):
        w = w - 0.5 * world.gradient(w - 0.3 * world.gradient(w))  # (2), (3)
    got = world.trained(Meta(PER_FEDAVG.params(variant="fo", alpha=0.3, beta=0.5)))
    np.testing.assert_allclose(got, w, atol=2e-6)


def test_hessian_free(small: Small) -> None:
    world = World(small, "local-steps=1")
    alpha, beta, delta, w = 0.3, 0.5, 0.01, world.start.astype(np.float64)
    q = world.gradient(w - alpha * world.gradient(w))
    along = (world.gradient(w + delta * q) - world.gradient(w - delta * q)) / (2 * delta)
    got = world.trained(Meta(PER_FEDAVG.params(variant="hf", alpha=alpha, beta=beta, delta=delta)))
    np.testing.assert_allclose(got, w - beta * (q - alpha * along), atol=2e-6)  # (4)
    assert np.abs(beta * alpha * along).max() > 1e-4  # the term is there


def test_two_plain_steps_on_the_same_batch(small: Small) -> None:
    world = World(small, "local-steps=2")
    w = world.start.astype(np.float64)
    for _ in range(4):
        w = w - 0.02 * world.gradient(w)
    half = Meta(PER_FEDAVG.params(variant="two-step"))
    np.testing.assert_allclose(world.trained(half), w, atol=2e-6)
    assert half.personalise(world.task, world.down, Memory(), np.random.default_rng(0)) is world.down.vectors["model"]


@pytest.mark.parametrize(
    ("half", "rate"),
    [(Meta(PER_FEDAVG.params(alpha=0.3, steps=2)), 0.3), (Updated(FEDUPDATE.params(steps=2)), 0.02)],
    ids=["per-fedavg", "fedupdate"],
)
def test_personal_models_are_a_few_steps_away(half: Any, rate: float, small: Small) -> None:
    world = World(small)
    w = world.start.astype(np.float64)
    for _ in range(2):
        w = w - rate * world.gradient(w)
    got = half.personalise(world.task, world.down, Memory(), np.random.default_rng(0))
    np.testing.assert_allclose(got.vector, w, atol=2e-6)


def test_moreau_envelopes(small: Small) -> None:
    world, memory = World(small, "local-steps=3"), Memory()
    w = theta = world.start.astype(np.float64)
    for _ in range(3):
        for _ in range(2):
            theta = theta - 0.05 * (world.gradient(theta) + 4 * (theta - w) + 0.1 * theta)
        w = w - 4 * 0.02 * (w - theta)
    half = Moreau(PFEDME.params(lam=4.0, inner_steps=2, inner_lr=0.05, mu=0.1))
    first = half.personalise(world.task, world.down, memory, np.random.default_rng(0))
    assert first is world.down.vectors["model"]
    np.testing.assert_allclose(world.trained(half, memory), w, atol=2e-6)
    np.testing.assert_allclose(memory.vectors["personal"], theta, atol=2e-6)
    own = half.personalise(world.task, world.down, memory, np.random.default_rng(0))
    assert own.vector is memory.vectors["personal"]


def test_the_server_of_pfedme_mixes() -> None:
    strategy = server("pfedme", [10, 30], beta=2.0)
    state = strategy.init(vec(1, 1, 1, 1, 1), strategy.fleet)
    state = strategy.update(state, [arrival(0, 10, delta=vec(4, 0, 0, 0, 0)), arrival(1, 30, delta=vec(0, 4, 0, 0, 0))])
    assert state.theta.tolist() == [3, 7, 1, 1, 1]  # twice the mean update (1, 3, 0, 0, 0)


def test_rates_that_diverge_are_refused() -> None:
    with pytest.raises(ConfigError, match="from 2 on theta diverges"):
        PFEDME.params(lam=15.0, inner_lr=0.2)
    with pytest.raises(ConfigError, match="from 2 on the local copies diverge"):
        server("pfedme", [1], lam=200.0, inner_lr=0.001)


def test_fedupdate_trains_as_fedavg(small: Small, finished: Finished) -> None:
    plain, updated = (finished(small(f"algorithm={name}"), name=name) for name in ("fedavg", "fedupdate"))
    assert updated["weights_sha256"] == plain["weights_sha256"]
    assert updated["accuracy"]["personal"] != plain["accuracy"]["personal"]
