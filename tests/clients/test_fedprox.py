"""The proximal term against a numeric gradient."""

from collections.abc import Callable

import numpy as np
import torch

from fedsim.clients.fedprox import Proximal
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def test_the_gradient_is_that_of_the_penalty(small: Callable[..., RunConfig]) -> None:
    task = task_of(small())
    anchor, weight = task.initial().parameters, 0.7
    down = Downlink({"model": task.initial()}, numbers={"proximal": weight})
    gradient_hook = Proximal(None).gradient_hook(task, down, ClientState())
    assert gradient_hook is not None
    rng = np.random.default_rng(0)
    point = anchor + rng.standard_normal(anchor.size).astype(np.float32)
    parameters = [torch.tensor(values, requires_grad=True) for _, values in task.layout.split(point)]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    gradient_hook(parameters)
    got = np.concatenate([p.grad.reshape(-1).numpy() for p in parameters if p.grad is not None])

    def penalty(x: np.ndarray) -> float:
        return weight / 2 * float(((x.astype(np.float64) - anchor) ** 2).sum())

    for index in (0, 17, 300):
        step = np.zeros_like(point, np.float64)
        step[index] = 1e-3
        numeric = (penalty(point + step) - penalty(point - step)) / 2e-3
        assert abs(numeric - got[index]) < 1e-4


def test_a_larger_weight_gives_a_shorter_update(small: Callable[..., RunConfig]) -> None:
    task = task_of(small("local-epochs=5"))
    start = task.initial()

    def moved(weight: float) -> float:
        down = Downlink({"model": start}, numbers={"proximal": weight})
        uplink = Proximal(None).train(task, down, ClientState(), np.random.default_rng(0))
        return float(np.linalg.norm(uplink.weights["delta"].parameters))

    assert moved(5.0) < 0.7 * moved(0.0)
