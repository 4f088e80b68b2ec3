"""FedDistill: targets by hand, the loss, and local training as its limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from tests.equations.halves import SMALL, params_of, started

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def server_of(clients: int, classes: int = 2) -> Any:
    made = registry.find("algorithm", "feddistill").server(params_of("feddistill"), RunConfig(clients=clients))
    made.attach(Fleet([Client(i, i, 4, 1, (2,) * classes) for i in range(clients)], SMALL, None))  # type: ignore[arg-type]
    return made


def arrived(client: int, predictions: list[list[float]], counts: list[int]) -> Arrival:
    arrays = {"predictions": np.float32(predictions), "counts": np.array(counts, np.int64)}
    return Arrival(client, 0, Uplink(4, arrays=arrays), 0.0, 1.0)


def test_the_target_of_a_client_is_the_mean_of_the_others() -> None:
    server = server_of(3)
    state = started(server, 0, 0, 0)
    assert dict(server.instruct(state, 0, train=True).arrays) == {}
    none = [0.0, 0.0]
    sent = [([[0.9, 0.1], none], [4, 0]), ([[0.5, 0.5], none], [2, 0]), ([[0.1, 0.9], [0.2, 0.8]], [2, 2])]
    state = server.update(state, [arrived(client, *each) for client, each in enumerate(sent)])
    targets = [server.instruct(state, client, train=True).arrays["targets"] for client in range(3)]
    np.testing.assert_allclose(targets[0], [[0.3, 0.7], [0.2, 0.8]], atol=1e-7)  # class 1 is held by client 2 alone
    np.testing.assert_allclose(targets[1][0], [0.5, 0.5], atol=1e-7)
    np.testing.assert_allclose(targets[2], [[0.7, 0.3], none], atol=1e-7)  # nobody else holds class 1
    state = server.update(state, [arrived(1, [[0.7, 0.3], none], [2, 0])])  # the others' last predictions count
    np.testing.assert_allclose(server.instruct(state, 0, train=True).arrays["targets"][0], [0.4, 0.6], atol=1e-7)
    evaluation = server.instruct(state, 0, train=False)
    assert (evaluation.nbytes, evaluation.shared) == (0, False)


def task_and_half(config: RunConfig) -> tuple[TorchTask, Any]:
    task = TorchTask(config, client_data(config, 0), 10)
    return task, registry.load(registry.find("algorithm", "feddistill").client)(config.params("feddistill"))


def softmax(z: Any) -> Any:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_the_loss_adds_the_cross_entropy_with_the_targets(small: Small) -> None:
    config = small("algorithm=feddistill", "feddistill.gamma=0.7", "local-steps=1", "batch-size=1000")
    (task, half), data = task_and_half(config), client_data(config, 0)
    targets = softmax(np.random.default_rng(0).standard_normal((10, 10))).astype(np.float32)
    targets[::2] = 0  # classes without a target
    loss = half.loss(task, Downlink(arrays={"targets": targets}))
    fit, plain = (task.fit(task.initial(), np.random.default_rng(0), loss=each) for each in (loss, None))
    logs = np.log(softmax(task.outputs(task.initial(), on="train").astype(np.float64)))
    assert fit.loss == pytest.approx(plain.loss + 0.7 * -(targets[data.y_train] * logs).sum(1).mean(), rel=1e-5)  # (2)


def test_a_client_sends_the_mean_predictions_of_its_trained_model(small: Small) -> None:
    config = small("algorithm=feddistill", "partition.alpha=0.2")
    (task, half), data, state = task_and_half(config), client_data(config, 0), ClientState()
    uplink = half.train(task, Downlink(shared=False), state, np.random.default_rng(0))
    assert dict(uplink.weights) == {}
    found = softmax(task.outputs(state.weights["model"], on="train"))
    for label in range(10):
        held = data.y_train == label
        mean = found[held].mean(axis=0) if held.any() else np.zeros(10)
        np.testing.assert_allclose(uplink.arrays["predictions"][label], mean, atol=1e-5)  # (1)
        assert uplink.arrays["counts"][label] == held.sum()


@pytest.mark.parametrize("settings", [["feddistill.gamma=0"], ["clients=1", "partition=iid"]])
def test_without_distillation_it_is_local_training(settings: list[str], small: Small, finished: Finished) -> None:
    keys = ["rounds=3", "feddistill.gamma=1", *settings]
    ours, local = (finished(small(f"algorithm={name}", *keys), name=name) for name in ("feddistill", "local"))
    assert ours["metrics"] == local["metrics"]
    if settings == ["feddistill.gamma=0"]:
        other = finished(small("algorithm=feddistill", "rounds=3"), name="distilled")
        assert other["metrics"] != local["metrics"]


def test_a_negative_weight_is_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"feddistill.gamma must be at least 0"):
        small("algorithm=feddistill", "feddistill.gamma=-1")
