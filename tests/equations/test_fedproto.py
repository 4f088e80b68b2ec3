"""FedProto: prototypes by hand, the nearest prototype as a linear head, and no weights on the wire."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
CLASSES, FEATURES = 10, 200  # of digits and mlp


def arrived(client: int, prototypes: list[list[float]], counts: list[int]) -> Arrival:
    arrays = {"prototypes": np.float32(prototypes), "counts": np.array(counts, np.int64)}
    return Arrival(client, 0, Uplink(sum(counts), arrays=arrays), 0.0, 1.0)


def test_global_prototypes_are_means_by_samples_of_what_was_last_sent() -> None:
    layout = Layout((Tensor("head.weight", (2, 1), "head"), Tensor("head.bias", (2,), "head")))
    algorithm = registry.find("algorithm", "fedproto")
    server = algorithm.server(algorithm.params(), RunConfig(clients=2))
    server.attach(Fleet([Client(i, i, 4, 1, (3, 1)) for i in (0, 1)], layout, Weights(np.zeros(4, np.float32))))
    state = server.init(server.fleet.initial, server.fleet)
    first = server.instruct(state, 0, train=True)
    assert first.arrays["counts"].tolist() == [0, 0]
    state = server.update(state, [arrived(0, [[0], [9]], [3, 0]), arrived(1, [[2], [4]], [1, 2])])
    down = server.instruct(state, 0, train=True)
    assert down.arrays["prototypes"].tolist() == [[0.5], [4.0]]  # (0*3 + 2*1)/4; client 0 lacks class 1
    assert down.arrays["counts"].tolist() == [4, 2]
    assert (dict(down.weights), down.shared) == ({}, False)
    state = server.update(state, [arrived(0, [[4], [0]], [3, 0])])  # client 1 is absent: its last prototypes count
    assert server.instruct(state, 1, train=False).arrays["prototypes"].tolist() == [[3.5], [4.0]]


def task_and_half(config: RunConfig) -> tuple[TorchTask, Any]:
    task = TorchTask(config, client_data(config, 0), CLASSES)
    return task, registry.load(registry.find("algorithm", "fedproto").client)(config.params("fedproto"))


def prototypes(counts: list[int] | None = None) -> Downlink:
    values = np.random.default_rng(3).standard_normal((CLASSES, FEATURES)).astype(np.float32)
    known = np.array([1] * CLASSES if counts is None else counts, np.int64)
    return Downlink(arrays={"prototypes": values, "counts": known}, shared=False)


def features_of(task: TorchTask, weights: Weights, x: torch.Tensor) -> np.ndarray:
    tensors = task.layout.named(weights)
    hidden = x.flatten(1).numpy()
    for layer in ("base.0", "base.2"):
        hidden = np.maximum(hidden @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"], 0)
    return hidden


def test_a_client_sends_the_mean_features_of_its_trained_model(small: Small) -> None:
    config = small("algorithm=fedproto", "model=mlp")
    (task, half), data = task_and_half(config), client_data(config, 0)
    state = ClientState()
    uplink = half.train(task, prototypes(), state, np.random.default_rng(0))
    assert dict(uplink.weights) == {}
    assert uplink.arrays["counts"].tolist() == np.bincount(data.y_train, minlength=CLASSES).tolist()
    found = features_of(task, state.weights["model"], torch.from_numpy(data.x_train))
    for label in np.unique(data.y_train):
        mean = found[data.y_train == label].mean(axis=0)
        np.testing.assert_allclose(uplink.arrays["prototypes"][label], mean, atol=1e-4)
    lacking = np.setdiff1d(np.arange(CLASSES), data.y_train)
    assert not uplink.arrays["prototypes"][lacking].any()


def test_the_loss_adds_the_mean_squared_distance_to_known_prototypes(small: Small) -> None:
    config = small("algorithm=fedproto", "model=mlp", "fedproto.lam=0.7", "local-steps=1", "batch-size=1000")
    (task, half), data = task_and_half(config), client_data(config, 0)
    known = [1, 0] * 5
    down = prototypes(known)
    fit = task.fit(task.initial(), np.random.default_rng(0), loss=half.loss(task, down))
    plain = task.fit(task.initial(), np.random.default_rng(0))
    gap = features_of(task, task.initial(), torch.from_numpy(data.x_train)) - down.arrays["prototypes"][data.y_train]
    gap *= np.array(known)[data.y_train][:, None]
    assert fit.loss == pytest.approx(plain.loss + 0.7 * np.square(gap).mean(), rel=1e-4)  # (2)
    assert not np.array_equal(fit.weights.parameters, plain.weights.parameters)


def test_the_personal_model_predicts_the_nearest_prototype_among_own_classes(small: Small) -> None:
    config = small("algorithm=fedproto", "model=mlp", "partition.alpha=0.2")
    (task, half), data = task_and_half(config), client_data(config, 0)
    own, down = np.unique(data.y_train), prototypes()
    assert len(own) < CLASSES
    personal = half.personalize(task, down, ClientState(), np.random.default_rng(0))
    found = features_of(task, task.initial(), torch.from_numpy(data.x_test))
    distances = np.square(found[:, None, :] - down.arrays["prototypes"][None, own]).sum(axis=2)
    nearest = own[distances.argmin(axis=1)]
    assert task.evaluate(personal)["accuracy"] == pytest.approx((nearest == data.y_test).mean())
    assert half.personalize(task, prototypes([0] * CLASSES), ClientState(), np.random.default_rng(0)) is not personal
    without = half.personalize(task, prototypes([0] * CLASSES), ClientState(), np.random.default_rng(0))
    assert np.array_equal(without.parameters, task.initial().parameters)  # no prototypes yet: its own head


def test_without_the_distance_the_models_are_those_of_local_training(small: Small, finished: Finished) -> None:
    keys = ("model=mlp", "rounds=3")
    ours = finished(small("algorithm=fedproto", "fedproto.lam=0", *keys), name="fedproto")
    local = finished(small("algorithm=local", *keys), name="local")
    assert ours["metrics"]["loss"]["local"] == local["metrics"]["loss"]["local"]
