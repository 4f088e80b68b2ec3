"""Samples that a client holds out of its training data."""

from collections.abc import Callable

import numpy as np
import pytest

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import ClientData

Small = Callable[..., RunConfig]


def client_with(config: RunConfig, samples: int, client: int = 0) -> TorchTask:
    """A regression with the inputs 0, 1, 2, ... and targets 0: a linear model with weight 1 has the loss x^2."""
    x = np.arange(samples, dtype=np.float32)[:, None]
    y = np.zeros((samples, 1), np.float32)
    return TorchTask(config, ClientData(x, y, x[:1] + 100, y[:1], 0, "regression"), 0, client)


def inputs(task: TorchTask) -> list[float]:
    return [float(x) for x in next(task.samples("train").chunks(100))[0]]


def test_the_rest_is_trained_on_and_the_loss_is_that_of_the_held_out_samples(small: Small) -> None:
    task = client_with(small("model=mlr"), 10)
    rest, loss = task.held_out(0.3)
    assert (rest.examples, task.examples, len(inputs(task))) == (7, 10, 10)
    assert inputs(rest) == sorted(inputs(rest))  # batches in order stay in order
    held = sorted(set(inputs(task)) - set(inputs(rest)))
    assert len(held) == 3
    weights = task.initial()
    weights.parameters[:] = [1, 0]
    assert loss(weights) == pytest.approx(np.square(held).mean())
    assert rest.evaluate(weights) == task.evaluate(weights)  # the tests are those of the client


def test_the_samples_depend_on_the_seed_and_the_client_alone(small: Small) -> None:
    def kept(seed: int, client: int) -> list[float]:
        return inputs(client_with(small("model=mlr", f"seed={seed}"), 50, client).held_out(0.2)[0])

    assert kept(0, 0) == kept(0, 0)
    assert kept(0, 0) != kept(0, 1)
    assert kept(0, 0) != kept(1, 0)
    task, rng = client_with(small("model=mlr"), 50), np.random.default_rng(0)
    assert inputs(task.held_out(0.2, rng)[0]) != inputs(task.held_out(0.2, rng)[0])


def test_labels_are_those_of_the_rest(small: Small) -> None:
    x, y = np.zeros((10, 2), np.float32), np.array([0] * 5 + [2] * 5)
    task = TorchTask(small("model=mlr"), ClientData(x, y, x, y, 3), 3)
    rest, _ = task.held_out(0.4)
    assert rest.labels.sum() == 6
    assert (rest.labels <= task.labels).all()


def test_a_client_cannot_hold_out_everything(small: Small) -> None:
    with pytest.raises(ConfigError, match="client 3 cannot hold out 1 of 1 training samples"):
        client_with(small("model=mlr"), 1, client=3).held_out(0.9)
