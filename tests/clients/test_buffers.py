"""A personal model is tested with the buffers that belong to it: BatchNorm's statistics of those who trained it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clients.local_sgd import LocalSGD
from clients.task import TorchTask
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.payload import Downlink, Memory, Model
from fedsim.rng import stream
from partitions.silo import client_data

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


class Normed(nn.Module):
    """Its first layer is BatchNorm, so a model says little with statistics that are not its own."""

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


def test_buffers_travel_beside_the_parameters(normed: Small) -> None:
    task = task_of(normed())
    names = [t.name for t in task.layout.buffers]
    assert names == ["base.1.running_mean", "base.1.running_var"]
    down = Downlink({"model": task.initial(), "buffers": task.initial_buffers()})
    uplink = LocalSGD(None).train(task, down, Memory(), np.random.default_rng(0))
    assert uplink.vectors["delta"].size == task.layout.size
    assert uplink.vectors["buffers"].size == task.layout.buffer_size
    assert not np.array_equal(uplink.vectors["buffers"], task.initial_buffers())
    assert uplink.local is not None
    own = task.accuracy(uplink.local, uplink.vectors["buffers"])
    foreign = task.accuracy(uplink.local, np.full(task.layout.buffer_size, 50, np.float32))
    assert own != foreign


def test_local_training_is_tested_with_its_own_statistics(normed: Small, finished: Finished) -> None:
    config = normed("algorithm=local")
    accuracy = finished(config)["accuracy"]
    expected, foreign = [], []
    for client in range(4):
        task = task_of(config, client)
        model = Model(task.initial(), None)
        for step in range(2):
            model = task.fit(model.vector, stream(config.seed, client, step, 0, "train"), buffers=model.buffers).whole
        expected.append(task.accuracy(*model))
        foreign.append(task.accuracy(model.vector))
    assert accuracy["personal"]["per_client"] == accuracy["local"]["per_client"] == expected
    assert expected != foreign


def test_a_tuned_copy_is_tested_with_the_statistics_of_its_tuning(normed: Small, finished: Finished) -> None:
    config = normed("algorithm=fedavg-ft", "rounds=1", "clients=1", "partition=iid", "fedavg-ft.epochs=5")
    task = task_of(config)
    shared = task.fit(task.initial(), stream(config.seed, 0, 0, 0, "train")).whole
    # one client's mean is itself, but for the rounding of model + (trained - model)
    copy = task.fit(shared.vector, stream(config.seed, 0, 1, 0, "personalise"), buffers=shared.buffers, epochs=5)
    assert finished(config)["accuracy"]["personal"]["per_client"] == [task.accuracy(*copy.whole)]
    assert task.accuracy(*copy.whole) != task.accuracy(copy.model, shared.buffers)


@pytest.mark.parametrize("name", ["local", "fedamp", "heurfedamp", "pfedme", "twafl"])
def test_what_was_trained_last_is_kept_with_its_statistics(name: str, normed: Small) -> None:
    config = normed(f"algorithm={name}")
    task, half, memory = task_of(config), half_of(config), Memory()
    numbers = {"proximal": 0.1, "deep": True, "deep-stages": "head"}
    down = Downlink({"model": task.initial(), "buffers": task.initial_buffers()}, numbers)
    uplink = half.train(task, down, memory, rng())
    personal = half.personalise(task, down, memory, rng())
    assert np.array_equal(personal.buffers, uplink.local.buffers)
    assert not np.array_equal(personal.buffers, task.initial_buffers())


def test_a_mixture_has_statistics_of_its_own(normed: Small) -> None:
    """With alpha = 1 it is local training, with alpha = 0 the shared model, which does not notice the mixture."""
    for alpha in (0, 1):
        config = normed("algorithm=apfl", f"apfl.alpha={alpha}", "apfl.adapt=never")
        task, half, memory = task_of(config), half_of(config), Memory()
        alone = shared = Model(task.initial(), task.initial_buffers())
        for _ in range(2):
            down = Downlink({"model": shared.vector, "buffers": shared.buffers})
            uplink = half.train(task, down, memory, rng())
            alone = task.fit(alone.vector, rng(), buffers=alone.buffers).whole
            plain = task.fit(shared.vector, rng(), buffers=shared.buffers).whole
            assert np.array_equal(uplink.vectors["buffers"], plain.buffers)
            shared = Model(shared.vector + 1, plain.buffers)  # what comes next is another model
        personal = half.personalise(task, Downlink({"model": shared.vector}), memory, rng())
        if alpha == 1:
            np.testing.assert_allclose(personal.vector, alone.vector, atol=1e-6)
            np.testing.assert_allclose(personal.buffers, alone.buffers, atol=1e-6)
        assert np.array_equal(uplink.local.buffers, personal.buffers)
