"""FML: the divergence by hand, mutual learning beside FedAvg and local training, private models of another kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.distillation import divergence
from fedsim.clients.fml import FmlClient, blend
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def logits(*chances: float) -> torch.Tensor:
    return torch.tensor([chances]).log()


def test_the_divergence_is_of_the_teacher_from_the_student_and_a_mean_over_samples() -> None:
    p, g = logits(0.8, 0.2), logits(0.5, 0.5)
    assert divergence(g, p).item() == pytest.approx(0.2231, abs=5e-5)  # in L_p
    assert divergence(p, g).item() == pytest.approx(0.1927, abs=5e-5)  # in L_g
    assert divergence(torch.cat([g, p]), torch.cat([p, p])).item() == pytest.approx(0.2231 / 2, abs=5e-5)
    assert divergence(g + 3, p - 7).item() == pytest.approx(0.2231, abs=5e-5)
    tokens = torch.stack([torch.cat([g, p]), torch.cat([g, g])])  # samples x tokens x classes
    assert divergence(tokens, torch.cat([p, p]).expand(2, 2, 2)).item() == pytest.approx(0.2231 * 3 / 4, abs=5e-5)
    assert blend(torch.tensor(2.0), g, p, 0.25).item() == pytest.approx(0.5 + 0.75 * 0.2231, abs=5e-5)


def test_the_teacher_gets_no_gradient() -> None:
    teacher, student = logits(0.8, 0.2).requires_grad_(), logits(0.5, 0.5).requires_grad_()
    divergence(teacher, student).backward()
    assert teacher.grad is None
    np.testing.assert_allclose(student.grad, [[0.5 - 0.8, 0.5 - 0.2]], atol=1e-6)  # softmax - teacher


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_with_labels_alone_the_shared_model_is_fedavgs_and_the_private_ones_are_local_bitwise(
    model: str, small: Small, finished: Finished
) -> None:
    keys = (f"model={model}", "rounds=3", "momentum=0.5", "local-steps=3")
    ours = finished(small("algorithm=fml", "fml.alpha=1", "fml.beta=1", *keys), name="fml")
    fedavg, local = (finished(small(f"algorithm={name}", *keys), name=name) for name in ("fedavg", "local"))
    for metric in ("loss", "accuracy"):
        assert ours["metrics"][metric]["global"] == fedavg["metrics"][metric]["global"]
        assert ours["metrics"][metric]["personal"] == local["metrics"][metric]["personal"]
        assert ours["metrics"][metric]["local"] == local["metrics"][metric]["local"]


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def test_a_step_of_both_models_by_hand(small: Small) -> None:
    """A linear model and one mini-batch of everything: the gradient with respect to the outputs is softmax - target."""
    config = small("algorithm=fml", "model=mlr", "local-steps=1", "batch-size=1000", "lr=0.1")
    task, data = task_of(config), client_data(config, 0)
    rng = np.random.default_rng(3)
    g, p = (Weights(rng.normal(size=650).astype(np.float32) * np.float32(0.1)) for _ in range(2))
    state = ClientState({"model": p})
    uplink = FmlClient(params_of("fml", alpha=0.3, beta=0.6)).train(task, Downlink({"model": g}), state, rng)
    x, target = data.x_train.reshape(len(data.x_train), -1), np.eye(10)[data.y_train]

    def softmax(weights: Weights) -> Any:
        output = x @ weights.parameters[:640].reshape(10, 64).T + weights.parameters[640:]
        chances = np.exp(output - output.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)

    def step(own: Weights, partner: Weights, share: float) -> Any:
        slope = (softmax(own) - share * target - (1 - share) * softmax(partner)) / len(x)
        return own.parameters - 0.1 * np.concatenate([(slope.T @ x).reshape(-1), slope.sum(axis=0)])

    np.testing.assert_allclose(state.weights["model"].parameters, step(p, g, 0.3), atol=1e-5)  # (1)
    np.testing.assert_allclose(g.parameters + uplink.weights["delta"].parameters, step(g, p, 0.6), atol=1e-5)  # (2)
    labels = -np.log(softmax(g)[target == 1]).mean()
    taught = (softmax(p) * np.log(softmax(p) / softmax(g))).sum(axis=1).mean()
    assert uplink.metrics["loss"] == pytest.approx(0.6 * labels + 0.4 * taught, rel=1e-5)


def test_private_models_may_be_of_other_architectures(small: Small, finished: Finished) -> None:
    keys = ("model=cnn-bn,mlr", "rounds=3", "local-steps=3", "fml.alpha=1", "fml.beta=1")
    ours = finished(small("algorithm=fml", "fml.shared=mlp", *keys), name="fml")
    local = finished(small("algorithm=local", *keys[:3]), name="local")
    assert ours["failures"] == []
    for kind in ("personal", "local"):  # alpha = 1: a private model trains as if it were alone
        assert ours["metrics"]["loss"][kind] == local["metrics"]["loss"][kind]
    fedavg = finished(small("algorithm=fedavg", "model=mlp", *keys[1:3]), name="fedavg")
    assert ours["bytes_up"] == fedavg["bytes_up"]
    assert None not in ours["accuracy"]["global"]["per_client"]
    taught = finished(small("algorithm=fml", "fml.shared=mlp", *keys[:3]), name="taught")
    assert taught["metrics"]["loss"]["personal"] != local["metrics"]["loss"]["personal"]


def test_different_models_need_the_name_of_the_shared_one(small: Small, finished: Finished) -> None:
    with pytest.raises(
        ConfigError, match=r"the clients have the models mlp, mlr: name the one .* fml.shared=NAME. Choices:"
    ):
        finished(small("algorithm=fml", "model=mlp,mlr"))


@pytest.mark.parametrize("name", ["fml", "fedkd"])
def test_clients_cannot_fine_tune_a_shared_model_of_another_kind(name: str, small: Small, finished: Finished) -> None:
    keys = [f"algorithm={name}", "finetune=1", "model=mlp", "local-steps=1", "rounds=1"]
    with pytest.raises(
        ConfigError, match=r"finetune=1: .* mlp cannot tune the shared model mlr. Set model=mlr or finetune=0"
    ):
        finished(small(*keys, f"{name}.shared=mlr"))
    assert finished(small(*keys, f"{name}.shared=mlp"), name="same")["failures"] == []


def test_a_newcomer_has_the_initial_private_model_and_absentees_do_not_move(small: Small) -> None:
    task, half, state = task_of(small("algorithm=fml", "local-steps=1")), FmlClient(params_of("fml")), ClientState()
    received = Downlink({"model": Weights(np.ones(task.layout.size, np.float32))})
    before = half.personalize(task, received, state, np.random.default_rng(0))
    assert np.array_equal(before.parameters, task.initial().parameters)
    half.train(task, received, state, np.random.default_rng(0))
    assert half.personalize(task, received, state, np.random.default_rng(0)) is state.weights["model"]
    assert received.model.parameters.tolist() == [1] * task.layout.size


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fml.alpha must be at least 0 and at most 1"):
        small("algorithm=fml", "fml.alpha=1.5")
    with pytest.raises(ConfigError, match=r"unknown model 'resnet-1000'.*mlp"):
        small("algorithm=fml", "fml.shared=resnet-1000")
