"""A personal model is tested with the buffers that belong to it: the BatchNorm statistics of its own training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsim import registry
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.rng import stream
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


class Normed(nn.Module):
    """Its first layer is BatchNorm, so a model is of little use with the statistics of another."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(shape[1] * shape[2]))
        self.head = nn.Linear(shape[1] * shape[2], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.base(x))
        return logits


@pytest.fixture
def normed(small: Small, monkeypatch: pytest.MonkeyPatch) -> Small:
    monkeypatch.setitem(registry.providers("model"), "normed", f"{__name__}:Normed")
    return lambda *keys: small("model=normed", "lr=0.02", "local-epochs=3", *keys)


def task_of(config: RunConfig, client: int = 0) -> TorchTask:
    return TorchTask(config, client_data(config, client), 10)


def half_of(config: RunConfig) -> Any:
    return registry.load(registry.find("algorithm", config.algorithm).client)(config.params(config.algorithm))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def accuracy(task: TorchTask, model: Weights) -> float:
    found = task.evaluate(model)
    assert found is not None
    return found["accuracy"]


def test_buffers_travel_beside_the_parameters(normed: Small) -> None:
    task = task_of(normed())
    names = [t.name for t in task.layout.buffers]
    assert names == ["base.1.running_mean", "base.1.running_var"]
    uplink = LocalSGD(None).train(task, Downlink({"model": task.initial()}), ClientState(), rng())
    delta, local = uplink.weights["delta"], uplink.local
    assert delta.parameters.size == task.layout.size
    assert delta.buffers.size == task.layout.buffer_size
    assert not np.array_equal(delta.buffers, task.initial().buffers)
    assert isinstance(local, Weights)
    assert np.array_equal(local.buffers, delta.buffers)
    foreign = Weights(local.parameters, np.full(task.layout.buffer_size, 50, np.float32))
    assert accuracy(task, local) != accuracy(task, foreign)


def test_local_training_is_tested_with_its_own_statistics(normed: Small, finished: Finished) -> None:
    config = normed("algorithm=local")
    summary = finished(config)["accuracy"]
    expected, foreign = [], []
    for client in range(4):
        task = task_of(config, client)
        model = task.initial()
        for step in range(2):
            model = task.fit(model, stream(config.seed, client, step, 0, "train")).weights
        expected.append(accuracy(task, model))
        foreign.append(accuracy(task, Weights(model.parameters, task.initial().buffers)))
    assert summary["personal"]["per_client"] == summary["local"]["per_client"] == expected
    assert expected != foreign


def test_a_tuned_copy_is_tested_with_the_statistics_of_its_tuning(normed: Small, finished: Finished) -> None:
    config = normed("algorithm=fedavg-ft", "rounds=1", "clients=1", "partition=iid", "fedavg-ft.epochs=5")
    task = task_of(config)
    shared = task.fit(task.initial(), stream(config.seed, 0, 0, 0, "train")).weights
    # one client's mean is itself, but for the rounding of model + (trained - model)
    copy = task.fit(shared, stream(config.seed, 0, 1, 0, "personalise"), epochs=5).weights
    assert finished(config)["accuracy"]["personal"]["per_client"] == [accuracy(task, copy)]
    assert accuracy(task, copy) != accuracy(task, Weights(copy.parameters, shared.buffers))


@pytest.mark.parametrize("name", ["local", "fedamp", "heurfedamp", "pfedme", "twafl"])
def test_what_was_trained_last_is_kept_with_its_statistics(name: str, normed: Small) -> None:
    config = normed(f"algorithm={name}")
    task, half, state = task_of(config), half_of(config), ClientState()
    numbers = {"proximal": 0.1, "deep": True, "deep-stages": "head"}
    down = Downlink({"model": task.initial()}, numbers=numbers)
    uplink = half.train(task, down, state, rng())
    personal = half.personalize(task, down, state, rng())
    assert np.array_equal(personal.buffers, uplink.local.buffers)
    assert not np.array_equal(personal.buffers, task.initial().buffers)


def test_a_mixture_has_statistics_of_its_own(normed: Small) -> None:
    """With alpha = 1 it is local training, with alpha = 0 the shared model, which the mixture does not change."""
    for alpha in (0, 1):
        config = normed("algorithm=apfl", f"apfl.alpha={alpha}", "apfl.adapt=never")
        task, half, state = task_of(config), half_of(config), ClientState()
        alone = shared = task.initial()
        for _ in range(2):
            uplink = half.train(task, Downlink({"model": shared}), state, rng())
            alone = task.fit(alone, rng()).weights
            plain = task.fit(shared, rng()).weights
            assert np.array_equal(uplink.weights["delta"].buffers, plain.buffers)
            shared = Weights(shared.parameters + 1, plain.buffers)  # what comes next is another model
        personal = half.personalize(task, Downlink({"model": shared}), state, rng())
        if alpha == 1:
            np.testing.assert_allclose(personal.parameters, alone.parameters, atol=1e-6)
            np.testing.assert_allclose(personal.buffers, alone.buffers, atol=1e-6)
        assert np.array_equal(uplink.local.buffers, personal.buffers)
