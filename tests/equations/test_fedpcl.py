"""FedPCL: the loss and the means by hand, what travels when, and the nearest direction as a linear head."""

from collections.abc import Callable
from math import exp, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim import registry
from fedsim.clients.fedpcl import FedPclClient, prototype_contrast
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]


def arrived(client: int, prototypes: list[list[float]], counts: list[int]) -> Arrival:
    arrays = {"prototypes": np.float32(prototypes), "counts": np.array(counts, np.int64)}
    return Arrival(client, 0, Uplink(sum(counts), arrays=arrays), 0.0, 1.0)


def test_all_prototypes_go_to_training_clients_with_gaps_filled_by_the_mean() -> None:
    layout = Layout((Tensor("head.weight", (2, 2), "head"), Tensor("head.bias", (2,), "head")))
    algorithm = registry.find("algorithm", "fedpcl")
    server = algorithm.server(algorithm.params(), RunConfig(clients=3))
    server.attach(Fleet([Client(i, i, 4, 1, (3, 1)) for i in range(3)], layout, Weights(np.zeros(6, np.float32))))
    state = server.init(server.fleet.initial, server.fleet)
    assert server.instruct(state, 0, train=True).nbytes == 0  # the first job only sends
    state = server.update(state, [arrived(0, [[1, 0], [0, 0]], [9, 0]), arrived(2, [[0, 1], [0.6, 0.8]], [1, 1])])
    down = server.instruct(state, 1, train=True)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(down.arrays["global"], [[half, half], [0.6, 0.8]], rtol=1e-6)  # holders count alike
    expected = [[[1, 0], [0.6, 0.8]], [[0, 1], [0.6, 0.8]]]  # client 0 lacks class 1; client 1 was not heard
    np.testing.assert_allclose(down.arrays["prototypes"], expected, rtol=1e-6)
    assert server.instruct(state, 0, train=True).arrays is down.arrays
    assert server.instruct(state, 1, train=False).nbytes == 0
    state = server.update(state, [arrived(0, [[0, 1], [0, 0]], [9, 0])])
    np.testing.assert_allclose(server.instruct(state, 1, train=True).arrays["global"][0], [0, 1], atol=1e-6)


def contrast(anchors: Any, features: Any, y: list[int], tau: float = 1.0) -> float:
    trainer: Any = SimpleNamespace(forward=lambda x: (x, None))
    batch = torch.tensor(features, dtype=torch.float32), torch.tensor(y)
    return prototype_contrast(torch.tensor(anchors, dtype=torch.float32), tau)(trainer, batch).item()


def test_the_loss_by_hand() -> None:
    eye = [[1.0, 0.0], [0.0, 1.0]]
    one = log(1 + exp(-1))  # .3133
    assert contrast([eye, eye], [[5.0, 0.0]], [0]) == pytest.approx(2 * one)
    assert contrast([eye, eye, eye], [[5.0, 0.0], [0.0, 0.1]], [0, 1]) == pytest.approx(2 * one)
    same = [[[0.6, 0.8]] * 3] * 4
    assert contrast(same, [[1.0, 2.0]], [2], tau=0.07) == pytest.approx(2 * log(3), rel=1e-5)
    swapped = [[0.0, 1.0], [1.0, 0.0]]
    wrong = log(1 + exp(1))
    assert contrast([eye, eye, swapped], [[1.0, 0.0]], [0]) == pytest.approx(one + (one + wrong) / 2)
    assert contrast([eye, eye], [[1.0, 0.0]], [0], tau=0.5) == pytest.approx(2 * log(1 + exp(-2)))


def test_classes_nobody_holds_are_left_out() -> None:
    known = [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    one = log(1 + exp(-1))
    assert contrast([known, known], [[1.0, 0.0]], [0]) == pytest.approx(2 * one)
    assert contrast([known, known], [[1.0, 0.0], [1.0, 0.0]], [0, 1]) == pytest.approx(one)  # half of the mini-batch


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def test_a_client_sends_unit_means_of_unit_features_and_uses_them(small: Small) -> None:
    config = small("algorithm=fedpcl", "model=mlr", "partition.alpha=0.2")
    task, data, half = task_of(config), client_data(config, 0), FedPclClient(params_of("fedpcl"))
    state, rng = ClientState(), np.random.default_rng(0)
    before = half.personalize(task, Downlink(shared=False), state, rng)
    assert np.array_equal(before.parameters, task.initial().parameters)
    uplink = half.train(task, Downlink(shared=False), state, rng)
    z = data.x_train.reshape(len(data.x_train), -1).astype(np.float64)  # the features of a linear model are its inputs
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    own = np.unique(data.y_train)
    assert len(own) < 10
    means = np.zeros((10, 64))
    for label in own:
        mean = z[data.y_train == label].mean(axis=0)
        means[label] = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(uplink.arrays["prototypes"], means, atol=1e-6)
    assert uplink.arrays["counts"].tolist() == task.labels.tolist()
    tests = data.x_test.reshape(len(data.x_test), -1)
    nearest = own[(tests @ means[own].T).argmax(axis=1)]
    for model in (half.personalize(task, Downlink(shared=False), state, rng), uplink.local):
        assert task.evaluate(model)["accuracy"] == pytest.approx((nearest == data.y_test).mean())


def test_the_first_job_trains_nothing_and_later_ones_the_base_alone(small: Small) -> None:
    config = small("algorithm=fedpcl", "model=mlp", "weight-decay=0.1", "momentum=0.9", "local-steps=5")
    task, half, state = task_of(config), FedPclClient(params_of("fedpcl", tau=0.5)), ClientState()
    first = half.train(task, Downlink(shared=False), state, np.random.default_rng(0))
    assert np.array_equal(state.weights["model"].parameters, task.initial().parameters)
    prototypes = first.arrays["prototypes"]
    down = Downlink(arrays={"global": prototypes, "prototypes": prototypes[None]}, shared=False)
    losses = [half.train(task, down, state, np.random.default_rng(i)).metrics["loss"] for i in range(4)]
    assert losses[-1] < losses[0]
    moved = state.weights["model"].parameters != task.initial().parameters
    head = task.layout.part("head").parameters
    assert not moved[head].any()
    assert moved[~head].mean() > 0.9


def test_it_learns_from_peers(small: Small, finished: Callable[..., dict[str, Any]]) -> None:
    keys = ("algorithm=fedpcl", "model=mlp", "rounds=4", "batch-size=16", "lr=0.1")
    summary = finished(small(*keys))
    assert summary["accuracy"]["personal"]["final"] > 0.85


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fedpcl.tau must be above 0"):
        small("algorithm=fedpcl", "fedpcl.tau=0")
