"""FedKD: ranks by hand, products on the server, the adaptive losses, and FedAvg beside local training as a limit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients.fedkd import FedKdClient, compressed, low_rank
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, WireError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.fedkd import restored
from fedsim.transport.answer_check import AnswerCheck
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
RNG = np.random.default_rng(0)


def with_spectrum(rows: int, columns: int, sigma: list[float]) -> Any:
    """A matrix with these singular values."""
    u, v = (np.linalg.qr(RNG.normal(size=(n, len(sigma))))[0] for n in (rows, columns))
    return ((u * sigma) @ v.T).astype(np.float32)


@pytest.mark.parametrize(("energy", "rank"), [(0.5, 1), (0.76, 1), (0.77, 2), (0.95, 2), (0.953, 3), (0.98, 3)])
def test_the_smallest_rank_that_keeps_enough(energy: float, rank: int) -> None:
    """sigma = (4, 2, 1): the first keeps 16/21 = .762, two keep 20/21 = .952."""
    matrix = with_spectrum(20, 30, [4, 2, 1])
    factors = low_rank(matrix, energy)
    assert factors is not None
    assert factors.shape == (rank, 1 + 20 + 30)
    product = (factors[:, :1] * factors[:, 1:21]).T @ factors[:, 21:]
    lost = np.square(matrix - product).sum() / np.square(matrix).sum()
    assert lost == pytest.approx([5 / 21, 1 / 21, 0][rank - 1], abs=1e-5)


def test_what_is_not_smaller_is_sent_as_it_is() -> None:
    flat = with_spectrum(6, 6, [1] * 6)  # a flat spectrum needs all ranks
    assert low_rank(flat, 0.98) is None
    assert low_rank(with_spectrum(20, 30, [4, 2, 1]), 1.0) is None
    assert low_rank(with_spectrum(3, 3, [1.0]), 0.5) is not None  # 7 floats for 9
    assert low_rank(with_spectrum(3, 2, [1.0]), 0.5) is None  # 6 floats for 6


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def server_of(task: TorchTask) -> Any:
    config = task.config
    server = registry.find("algorithm", "fedkd").server(config.params("fedkd"), config)
    server.attach(Fleet([Client(i, i, 4, 1, (1,) * 10) for i in range(4)], task.layout, task.initial()))
    return server


def test_an_uplink_is_restored_matrix_by_matrix(small: Small) -> None:
    task = task_of(small("algorithm=fedkd", "model=cnn-bn"))
    layout, update = task.layout, np.zeros(task.layout.size, np.float32)
    conv, dense = (next(t for t in layout.matrices if len(t.shape) == n) for n in (4, 2))
    kernel = with_spectrum(conv.shape[0], conv.size // conv.shape[0], [3, 0.1])
    update[layout.slices[conv.name]] = kernel.reshape(-1)
    update[layout.slices["head.bias"]] = np.arange(10)
    update[layout.slices["head.weight"]] = with_spectrum(10, 512, [1] * 10).reshape(-1)
    arrays = compressed(layout, update, 0.95)
    assert {name: array.shape for name, array in arrays.items()} == {
        f"{conv.name} factors": (1, 1 + conv.shape[0] + conv.size // conv.shape[0]),
        "head.weight": (10, 512),  # a flat spectrum
    }  # what did not change, as the dense layer, is left out
    assert dense.name not in arrays
    vectors = layout.part("vectors")
    buffers = np.arange(layout.buffer_size, dtype=np.float32)
    uplink = Uplink(4, {"delta": Weights(update, buffers).only(vectors)}, arrays)
    AnswerCheck(server_of(task).expects()).check_uplink(uplink)
    found = restored(layout, uplink)
    assert np.array_equal(found.buffers, buffers)
    place = layout.slices[conv.name]
    assert np.array_equal(np.delete(found.parameters, np.r_[place]), np.delete(update, np.r_[place]))
    assert np.square(found.parameters - update).sum() == pytest.approx(0.1**2, rel=1e-3)


def test_factors_of_another_shape_are_refused_as_the_clients_failure(small: Small) -> None:
    task = task_of(small("algorithm=fedkd", "model=mlr"))
    vectors = task.initial().only(task.layout.part("vectors"))
    good = Uplink(4, {"delta": vectors}, {"head.weight factors": np.ones((2, 1 + 10 + 64), np.float32)})
    expects = server_of(task).expects()
    AnswerCheck(expects).check_uplink(good)
    bad = replace(good, arrays={"head.weight factors": np.ones((2, 70), np.float32)})
    with pytest.raises(WireError, match=r"'head.weight factors' has shape \(2, 70\) where \(None, 75\)"):
        AnswerCheck(expects).check_uplink(bad)


def test_the_energy_rises_with_the_rounds_and_is_sent_to_train_alone(small: Small) -> None:
    task = task_of(small("algorithm=fedkd", "rounds=3"))
    server = server_of(task)
    state = server.init(task.initial(), server.fleet)
    found = [server.instruct(replace(state, step=step), 0, train=True).numbers["energy"] for step in range(4)]
    assert found == pytest.approx([0.96, 0.97, 0.98, 0.98])
    assert dict(server.instruct(state, 0, train=False).numbers) == {}


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_distillation_and_compression_it_is_fedavg_and_local_training_bitwise(
    model: str, small: Small, finished: Finished
) -> None:
    keys = (f"model={model}", "rounds=3", "momentum=0.5", "local-steps=3")
    off = [f"fedkd.{key}" for key in ("kl=0", "hidden=0", "start=1", "end=1")]
    ours = finished(small("algorithm=fedkd", *off, *keys), name="fedkd")
    fedavg, local = (finished(small(f"algorithm={name}", *keys), name=name) for name in ("fedavg", "local"))
    assert ours["metrics"]["loss"]["global"] == fedavg["metrics"]["loss"]["global"]
    assert ours["metrics"]["loss"]["personal"] == local["metrics"]["loss"]["personal"]
    assert ours["bytes_up"] == fedavg["bytes_up"]


def test_a_step_of_mentor_mentee_and_projection_by_hand(small: Small) -> None:
    """Linear models: the features are the inputs x, so H = |x - W x|^2 / F moves W alone, and q weighs the KL."""
    config = small("algorithm=fedkd", "model=mlr", "local-steps=1", "batch-size=1000", "lr=0.1")
    task, data = task_of(config), client_data(config, 0)
    rng = np.random.default_rng(3)
    s, m = (Weights(rng.normal(size=650).astype(np.float32) * np.float32(0.1)) for _ in range(2))
    w = (np.eye(64) + 0.01 * rng.normal(size=(64, 64))).astype(np.float32)
    state = ClientState({"model": m}, {"projection": w.copy()})
    down = Downlink({"model": s}, numbers={"energy": 1.0})
    uplink = FedKdClient(params_of("fedkd")).train(task, down, state, rng)
    x, target = data.x_train.reshape(len(data.x_train), -1).astype(np.float64), np.eye(10)[data.y_train]

    def softmax(weights: Weights) -> Any:
        output = x @ weights.parameters[:640].reshape(10, 64).T + weights.parameters[640:]
        chances = np.exp(output - output.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)

    ce_m, ce_s = (-np.log(softmax(each)[target == 1]).mean() for each in (m, s))
    q = 1 / (ce_m + ce_s)  # (1)

    def step(own: Weights, partner: Weights) -> Any:
        slope = (softmax(own) - target + q * (softmax(own) - softmax(partner))) / len(x)
        return own.parameters - 0.1 * np.concatenate([(slope.T @ x).reshape(-1), slope.sum(axis=0)])

    np.testing.assert_allclose(state.weights["model"].parameters, step(m, s), atol=1e-5)
    after = s.parameters + restored(task.layout, uplink).parameters
    np.testing.assert_allclose(after, step(s, m), atol=1e-5)
    gap = x @ w.T - x
    np.testing.assert_allclose(state.arrays["projection"], w - 0.1 * q * 2 * gap.T @ x / gap.size, atol=1e-5)
    taught = (softmax(m) * np.log(softmax(m) / softmax(s))).sum(axis=1).mean()
    assert uplink.metrics["loss"] == pytest.approx(ce_s + q * (taught + np.square(gap).mean()), rel=1e-5)


def test_a_mentor_of_another_architecture_and_smaller_uplinks(small: Small, finished: Finished) -> None:
    keys = ("rounds=3", "local-steps=3")
    different = ("model=cnn,mlr", "fedkd.shared=mlp", "fedkd.start=0.5", "fedkd.end=0.5")
    ours = finished(small("algorithm=fedkd", *different, *keys), name="kd")
    fedavg = finished(small("algorithm=fedavg", "model=mlp", *keys), name="fedavg")
    assert ours["failures"] == []
    assert ours["bytes_up"] < 0.2 * fedavg["bytes_up"]
    assert ours["bytes_down"] == fedavg["bytes_down"]
    assert ours["accuracy"]["personal"]["final"] > 0.3


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fedkd.end must be at least 0 and at most 1"):
        small("algorithm=fedkd", "fedkd.end=1.2")
    with pytest.raises(ConfigError, match=r"unknown model 'bert'"):
        small("algorithm=fedkd", "fedkd.shared=bert")


def test_filters_of_updates_refuse_factors(small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=r"filter 'clip' treats update, but fedkd sends 'head.weight', a statistic"):
        finished(small("algorithm=fedkd", "filters=clip"))
