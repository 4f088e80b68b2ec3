"""FedCP: the gate by hand, its limit FedPer, the mean of two networks, and no noise in tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim import registry
from fedsim.clients.mmd import mmd
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights
from tests.equations.halves import arrival, server, started, vec

Small = Callable[..., RunConfig]
CLASSES = 10
ONE_FEATURE = Layout(
    (Tensor("base.w", (1,), "base"), Tensor("head.weight", (1, 1), "head"), Tensor("head.bias", (1,), "head"))
)


def client(config: RunConfig) -> tuple[TorchTask, Any]:
    task = TorchTask(config, client_data(config, 0), CLASSES)
    return task, registry.load(registry.find("algorithm", "fedcp").client)(config.params("fedcp"))


def received(task: TorchTask, cpn: np.ndarray | None = None, model: Weights | None = None) -> Downlink:
    """A downlink with this CPN; the initial one unless given."""
    initial = task.initial("cpn").parameters
    return Downlink({"model": model or task.initial(), "cpn": Weights((initial if cpn is None else cpn) - initial)})


def open_gate(features: int) -> np.ndarray:
    """A CPN whose gate is r = 1, s = 0: its output is a constant, far larger in the first half."""
    biases = np.repeat([1e4, 0], features)
    return np.concatenate([np.zeros(2 * features**2 + 4 * features), biases]).astype(np.float32)


def outputs(task: TorchTask, model: Any) -> np.ndarray:
    """What a personal model predicts on the test samples."""
    found: list[torch.Tensor] = []

    def predict(trainer: Any, x: Any) -> Any:
        found.append(model.predict(trainer, x))
        return found[-1]

    task.evaluate(model.weights, predict=predict)
    return torch.cat(found).numpy()


def head_of(weights: np.ndarray, task: TorchTask) -> tuple[np.ndarray, np.ndarray]:
    return weights[:-CLASSES].reshape(CLASSES, task.layout.features), weights[-CLASSES:]


def test_the_server_averages_model_and_policy_by_samples() -> None:
    half = server("fedcp", [1, 3], ONE_FEATURE)
    state = started(half, 5, 6, 7)
    assert half.expects()["cpn"].shape == (2 + 6,)  # 2 F^2 + 6 F
    arrivals = [
        arrival(0, 1, delta=vec(4, 0, 0), cpn=vec(*[4] * 8)),
        arrival(1, 3, delta=vec(8, 4, 0), cpn=vec(*[8] * 8)),
    ]
    state = half.update(state, arrivals)
    down = half.instruct(state, 0, train=False)
    assert down.model.parameters.tolist() == [12, 9, 7]  # (6)
    assert down.weights["cpn"].parameters.tolist() == [7] * 8
    assert half.global_model(state).parameters.tolist() == [12, 9, 7]
    half.fleet.busy = {1: 1}  # it still trains from this state
    state = half.update(state, [arrival(0, 1, step=1, delta=vec(0, 0, 0), cpn=vec(*[1] * 8))])
    stale = arrival(1, 3, step=1, staleness=1, delta=vec(1, 0, 0), cpn=vec(*[0] * 8))
    down = half.instruct(half.update(state, [stale]), 0, train=True)
    assert (down.model.parameters.tolist(), down.weights["cpn"].parameters.tolist()) == ([13, 9, 7], [7] * 8)


def test_a_policy_of_zeros_divides_features_in_halves(small: Small) -> None:
    config = small("algorithm=fedcp", "model=mlp")
    task, half = client(config)
    rng, head = np.random.default_rng(1), task.layout.part("head")
    own = Weights(rng.standard_normal(head.size).astype(np.float32))
    zeros = np.zeros_like(task.initial("cpn").parameters)
    personal = half.personalize(task, received(task, zeros), ClientState({"head": own}), rng)
    matrices, biases = zip(*(head_of(w.parameters, task) for w in (own, task.initial().only(head))), strict=True)
    features = features_of(task)
    by_hand = features @ (matrices[0] + matrices[1]).T / 2 + biases[0] + biases[1]  # biases count whole
    np.testing.assert_allclose(outputs(task, personal), by_hand, atol=1e-4)


def features_of(task: TorchTask) -> np.ndarray:
    network = task.companion(task.initial()).network.eval()
    with torch.no_grad():
        x = torch.cat([x for x, _ in task.samples("test").chunks(100)])
        return network.base(x).numpy()


def test_the_gate_follows_its_equations(small: Small) -> None:
    task, half = client(small("algorithm=fedcp", "model=mlp"))
    rng, head, width = np.random.default_rng(2), task.layout.part("head"), task.layout.features
    own = Weights(rng.standard_normal(head.size).astype(np.float32))
    personal = half.personalize(task, received(task), ClientState({"head": own}), rng)
    (p, b_p), (g, b_g) = (head_of(w.parameters, task) for w in (own, task.initial().only(head)))
    k = p.sum(axis=0) / np.linalg.norm(p.sum(axis=0))  # (1)
    values = task.initial("cpn").parameters
    matrix, bias, scale, shift = np.split(values, np.cumsum([2 * width**2, 2 * width, 2 * width]))
    f = features_of(task)
    linear = (f * k) @ matrix.reshape(2 * width, width).T + bias
    normal = (linear - linear.mean(axis=1, keepdims=True)) / np.sqrt(linear.var(axis=1, keepdims=True) + 1e-5)
    one, two = np.split(np.maximum(normal * scale + shift, 0), 2, axis=1)
    r = np.exp(one) / (np.exp(one) + np.exp(two))  # (2)
    expected = (r * f) @ p.T + b_p + ((1 - r) * f) @ g.T + b_g  # (3)
    np.testing.assert_allclose(outputs(task, personal), expected, atol=1e-3)
    again = half.personalize(task, received(task), ClientState({"head": own}), np.random.default_rng(9))
    assert np.array_equal(outputs(task, personal), outputs(task, again))  # no noise in tests


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_an_open_gate_without_distance_is_fedper(model: str, small: Small) -> None:
    keys = (f"model={model}", "momentum=0.5", "local-steps=3")
    task, half = client(small("algorithm=fedcp", "fedcp.lam=0", *keys))
    head = task.layout.part("head")
    blank = task.initial().parameters.copy()
    blank[-CLASSES:] = 0  # b_g = 0
    start, own = Weights(blank, task.initial().buffers), task.initial().only(head)
    state, rng = ClientState({"head": own}), np.random.default_rng
    down = received(task, open_gate(task.layout.features), start)
    uplink = half.train(task, down, state, rng(0))
    fedper = registry.load(registry.find("algorithm", "fedper").client)(None)
    kept = ClientState({"private": own})
    other = fedper.train(task, Downlink({"shared": start.only(~head)}, numbers={"private": "head"}), kept, rng(0))
    np.testing.assert_allclose(state.weights["head"].parameters, kept.weights["private"].parameters, atol=1e-6)
    delta = uplink.weights["delta"]
    np.testing.assert_allclose(delta.only(~head).parameters, other.weights["delta"].parameters, atol=1e-6)
    np.testing.assert_allclose(delta.buffers, other.weights["delta"].buffers, atol=1e-6)
    half_way = (state.weights["head"].parameters - start.only(head).parameters) / 2
    np.testing.assert_allclose(delta.only(head).parameters, half_way, atol=1e-6)  # (5): psi_g + half_way
    assert not uplink.weights["cpn"].parameters.any()  # a saturated gate has no gradient


def test_training_moves_base_head_and_policy_and_follows_the_jobs_randomness(small: Small) -> None:
    task, half = client(small("algorithm=fedcp", "local-steps=2"))
    sent = [half.train(task, received(task), ClientState(), np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert sent[0].weights["cpn"].parameters.any()
    for name in ("delta", "cpn"):
        same, again, different = (uplink.weights[name].parameters for uplink in sent)
        assert np.array_equal(same, again)
        assert not np.array_equal(same, different)


def test_the_distance_to_the_received_features_is_part_of_the_loss(small: Small) -> None:
    """At the received model the distance is 0; with it training stays nearer to the received features."""
    losses = {}
    for lam in (0, 5):
        keys = ("model=mlp", "local-steps=1", "batch-size=2000", f"fedcp.lam={lam}")
        task, half = client(small("algorithm=fedcp", *keys))
        losses[lam] = half.train(task, received(task), ClientState(), np.random.default_rng(0)).metrics["loss"]
    assert losses[5] == pytest.approx(losses[0], abs=1e-5)
    task, half = client(small("algorithm=fedcp", "model=mlp", "local-steps=20", "fedcp.lam=5"))
    near = half.train(task, received(task), ClientState(), np.random.default_rng(0)).local.weights
    task, half = client(small("algorithm=fedcp", "model=mlp", "local-steps=20", "fedcp.lam=0"))
    far = half.train(task, received(task), ClientState(), np.random.default_rng(0)).local.weights
    x = torch.from_numpy(client_data(task.config, 0).x_train[:64])

    def moved(weights: Weights) -> float:
        with torch.no_grad():
            pair = [task.companion(w).network.base(x) for w in (weights, task.initial())]
        return float(mmd(*pair, (20, 30, 40, 100)))

    assert moved(near) < moved(far)
