"""MOON: the contrast by hand, its references frozen and computed once, and FedAvg without it."""

from collections.abc import Callable
from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.moon import MoonClient, model_contrast
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def half(**params: float) -> MoonClient:
    return MoonClient(params_of("moon", **params))


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_the_contrast_it_is_fedavg_bitwise(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "rounds=3", "momentum=0.5", "local-steps=3", "participation=0.5")
    ours = finished(small("algorithm=moon", "moon.mu=0", *keys), name="moon")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert ours["metrics"] == fedavg["metrics"]


def test_the_contrast_by_hand() -> None:
    one, across = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert model_contrast(one, one, one, 0.5).item() == pytest.approx(log(2))
    assert model_contrast(one, 3 * one, across, 0.5).item() == pytest.approx(-log(exp(2) / (exp(2) + 1)))
    assert model_contrast(one, across, one, 1.0).item() == pytest.approx(-log(1 / (1 + exp(1))))
    pair = torch.cat([one, one]), torch.cat([one, across]), torch.cat([across, one])
    both = model_contrast(*pair, 1.0).item()
    assert both == pytest.approx((-log(exp(1) / (exp(1) + 1)) - log(1 / (1 + exp(1)))) / 2)


def test_the_first_job_starts_with_ln_2_and_later_ones_use_the_previous_model(small: Small) -> None:
    task = task_of(small("algorithm=moon", "model=mlp", "local-steps=1", "batch-size=1000"))
    start, state, rng = task.initial(), ClientState(), np.random.default_rng
    plain = task.fit(start, rng(0))
    uplink = half(mu=2.0).train(task, Downlink({"model": start}), state, rng(0))
    assert uplink.metrics["loss"] == pytest.approx(plain.loss + 2 * log(2), rel=1e-6)
    assert state.weights["previous"] is uplink.local
    received = Weights(start.parameters * np.float32(1.1))
    second = half(mu=2.0, tau=0.7).train(task, Downlink({"model": received}), state, rng(1))
    x = torch.from_numpy(client_data(task.config, 0).x_train)

    def features(weights: Weights) -> Any:
        return torch.from_numpy(base_of_mlp(task, weights, x))

    previous = uplink.local
    assert isinstance(previous, Weights)
    contrast = model_contrast(features(received), features(received), features(previous), 0.7).item()
    assert second.metrics["loss"] == pytest.approx(task.fit(received, rng(1)).loss + 2 * contrast, rel=1e-5)
    assert contrast < log(2)


def base_of_mlp(task: TorchTask, weights: Weights, x: torch.Tensor) -> Any:
    tensors, hidden = task.layout.named(weights), x.flatten(1).numpy()
    for layer in ("base.0", "base.2"):
        hidden = np.maximum(hidden @ tensors[f"{layer}.weight"].T + tensors[f"{layer}.bias"], 0)
    return hidden


def test_the_contrast_moves_the_features_towards_the_received_model(small: Small) -> None:
    task = task_of(small("algorithm=moon", "model=mlp", "local-steps=5", "lr=0.01"))
    received, previous = task.initial(), task.fit(task.initial(), np.random.default_rng(5), epochs=3).weights
    x = torch.from_numpy(client_data(task.config, 0).x_train)

    def contrast(mu: float) -> float:
        state = ClientState({"previous": previous})
        after = half(mu=mu).train(task, Downlink({"model": received}), state, np.random.default_rng(0)).local
        assert isinstance(after, Weights)
        z, near, far = (torch.from_numpy(base_of_mlp(task, w, x)) for w in (after, received, previous))
        return model_contrast(z, near, far, 0.5).item()

    assert contrast(20.0) < contrast(1.0) < contrast(0.0)


def test_the_references_are_computed_once_per_sample_in_evaluation_mode(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three epochs: 3 n samples pass through the trained network, 2 n through both references together."""
    task = task_of(small("algorithm=moon", "model=cnn-bn", "local-epochs=3", "batch-size=40"))
    received, state = task.initial(), ClientState()
    passed = {"train": 0, "eval": 0}
    kind = type(task.network("model").module.base)
    forward = kind.forward

    def counted(module: Any, x: torch.Tensor) -> torch.Tensor:
        passed["train" if module.training else "eval"] += len(x)
        assert module.training or not torch.is_grad_enabled()
        result: torch.Tensor = forward(module, x)
        return result

    monkeypatch.setattr(kind, "forward", counted)
    half().train(task, Downlink({"model": received}), state, np.random.default_rng(0))
    assert passed == {"train": 3 * task.examples, "eval": 2 * task.examples}
    assert np.array_equal(received.buffers, task.initial().buffers)


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"moon.tau must be above 0"):
        small("algorithm=moon", "moon.tau=0")
    with pytest.raises(ConfigError, match=r"moon.mu must be at least 0"):
        small("algorithm=moon", "moon.mu=-1")
