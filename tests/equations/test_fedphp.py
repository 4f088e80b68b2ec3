"""FedPHP: the private model is a moving average by jobs, teaches the next one, and leaves FedAvg alone at lambda = 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedsim import registry
from fedsim.clients.mmd import bandwidths_of, mmd
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState
from fedsim.weights import Weights
from tests.quadratics import Federation

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_the_private_model_inherits_by_the_number_of_earlier_jobs() -> None:
    """T = 10, c = 1: mu of jobs 1, 2, 3 is 0, 0.09, 0.18; it ends at 0.9."""
    run = Federation("fedphp", [[1.0]], [[1.0]], local_steps=1, lr=0.5, lam=0.0)
    run.server.config = run.config.replace(rounds=10)
    private = 0.0
    for job, mu in enumerate([0, 0.09, 0.18]):
        before = run.state.model.parameters[0]
        run.round()
        local = before + 0.5 * (1 - before)
        private = mu * private + (1 - mu) * local  # (2)
        assert run.personal(0)[0] == pytest.approx(private)
        assert run.states[0].numbers["jobs"] == job + 1
    run.states[0].numbers["jobs"] = 50
    before, private = run.state.model.parameters[0], run.personal(0)[0]
    run.round()
    assert run.personal(0)[0] == pytest.approx(0.9 * private + 0.1 * (before + 0.5 * (1 - before)))


def task_and_half(config: RunConfig) -> tuple[TorchTask, Any]:
    task = TorchTask(config, client_data(config, 0), 10)
    return task, registry.load(registry.find("algorithm", "fedphp").client)(config.params("fedphp"))


@pytest.mark.parametrize("by", ["mmd", "kd"])
def test_the_loss_mixes_the_objective_with_the_distance_to_the_private_model(by: str, small: Small) -> None:
    config = small("algorithm=fedphp", "model=mlp", "fedphp.lam=0.3", f"fedphp.by={by}", "batch-size=50")
    task, half = task_and_half(config)
    shift = np.random.default_rng(1).normal(0, 0.05, task.layout.size).astype(np.float32)
    private = Weights(task.initial().parameters + shift)
    state, received = ClientState({"private": private}), task.initial()
    loss = half.loss(task, None, state)
    trainer, teacher = task.companion(received), task.companion(private)
    x, y = trainer.samples.at(np.arange(20))
    value = loss(trainer, (x, y))
    (features, output), (fixed, logits) = trainer.forward(x), teacher.forward(x)
    if by == "mmd":
        distance = mmd(features, fixed, bandwidths_of(features, fixed))
    else:  # the temperature is the teacher's alone
        distance = -((logits / 4).softmax(1) * output.log_softmax(1)).sum(1).mean()
    expected = 0.7 * cross_entropy(output, y) + 0.3 * distance
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(distance.detach()) > 1e-4
    value.backward()
    assert all(p.grad is None for p in teacher.parameters)
    assert all(torch.isfinite(p.grad).all() for p in trainer.parameters)
    assert np.array_equal(state.weights["private"].parameters, private.parameters)


def test_there_is_no_teacher_before_the_first_job_is_done(small: Small) -> None:
    task, half = task_and_half(small("algorithm=fedphp", "model=mlp"))
    assert half.loss(task, None, ClientState()) is None


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_the_distance_the_global_model_is_fedavgs_bitwise(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "local-steps=2", "participation=0.5", "rounds=3")
    ours = finished(small("algorithm=fedphp", "fedphp.lam=0", *keys), name="fedphp")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    for kind in ("global", "local"):
        assert ours["metrics"]["loss"][kind] == fedavg["metrics"]["loss"][kind]
    assert ours["metrics"]["loss"]["personal"] != fedavg["metrics"]["loss"]["personal"]


@pytest.mark.parametrize("by", ["mmd", "kd"])
def test_the_distance_changes_training(by: str, small: Small, finished: Finished) -> None:
    keys = ("algorithm=fedphp", "model=mlp", f"fedphp.by={by}", "local-steps=2")
    with_it, without = (finished(small(*keys, f"fedphp.lam={lam}"), name=str(lam)) for lam in (0.5, 0))
    assert with_it["weights_sha256"] != without["weights_sha256"]


def test_newcomers_use_the_global_model_and_unknown_distances_are_refused(small: Small) -> None:
    run = Federation("fedphp", [[1.0], [1.0]], [[1.0], [1.0]], local_steps=1, lr=0.5)
    run.round(0)
    assert run.personal(1)[0] == run.state.model.parameters[0] == 0.5
    with pytest.raises(ConfigError, match=r"unknown fedphp.by .l2.. Choices: kd, mmd"):
        small("algorithm=fedphp", "fedphp.by=l2")
    with pytest.raises(ConfigError, match=r"fedphp.lam must be .*below 1"):
        small("algorithm=fedphp", "fedphp.lam=1")
