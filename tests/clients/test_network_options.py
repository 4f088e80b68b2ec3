"""Networks with dropout, `precision` and `compile`: what they change in the training of a client, and what they leave."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsim import registry
from fedsim.clients.models import HeadOnBase
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class WithDropout(HeadOnBase):
    """Dropout between two linear layers."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, classes)


def dropout_run(config: RunConfig, finished: Finished, monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    found = registry.find
    with monkeypatch.context() as patch:
        patch.setattr(registry, "find", lambda kind, key: WithDropout if key == "mlp" else found(kind, key))
        return finished(config, name=name)


def test_dropout_depends_on_seed_client_and_job_alone(
    small: Small, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    one = dropout_run(small("model=mlp", "workers=1"), finished, monkeypatch, "one")
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)  # torch's own random numbers are not touched
    two = dropout_run(small("model=mlp", "workers=3"), finished, monkeypatch, "two")
    assert two["weights_sha256"] == one["weights_sha256"]
    other = dropout_run(small("model=mlp", "seed=1"), finished, monkeypatch, "other")
    assert other["weights_sha256"] != one["weights_sha256"]


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_bf16_rounds_products_and_keeps_float32_weights(model: str, small: Small) -> None:
    keys = (f"model={model}", "local-steps=3")
    exact, rounded = (task_of(small(*keys, *more)) for more in ((), ("precision=bf16",)))
    start = exact.initial()
    a, b = (task.fit(start, rng()).weights for task in (exact, rounded))
    assert b.parameters.dtype == np.float32
    moved, apart = (np.linalg.norm(x - y) for x, y in ((a.parameters, start.parameters), (a.parameters, b.parameters)))
    assert 0 < apart < 0.05 * moved  # bfloat16 has eight bits: a relative error of 0.4 % a product
    first, second = (task.evaluate(start)["loss"] for task in (exact, rounded))
    assert first != second == pytest.approx(first, rel=0.02)


def test_a_compiled_network_trains_the_same_up_to_rounding(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler runs for real; its slow back end (C++) is left out, which needs a compiler of the system."""
    compiled, plain = list[Any](), nn.Module.compile

    def traced(module: nn.Module) -> None:
        compiled.append(module)
        plain(module, backend="aot_eager")

    monkeypatch.setattr(nn.Module, "compile", traced)
    task = task_of(small("model=mlp", "compile=true", "local-steps=2"))
    after = task.fit(task.initial(), rng()).weights
    assert len(compiled) == 1
    assert compiled[0] is task.network("model").module
    usual = task_of(small("model=mlp", "local-steps=2"))
    np.testing.assert_allclose(after.parameters, usual.fit(usual.initial(), rng()).weights.parameters, atol=1e-6)
    assert [t.name for t in task.layout.parameters] == [t.name for t in usual.layout.parameters]
