"""pFedHN: the hypernetwork's gradients against differences, worked numbers, and its limit FedAvg."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.strategies.pfedhn import State, backward, inputs_of
from tests.equations.halves import arrival, server, started, vec

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
PLAIN = {"momentum": 0.0, "weight_decay": 0.0}


def single(weight: float, embedding: float) -> State:
    """h(v) = W v, with a bias of 0."""
    layer, v = np.float32([[weight, 0]]), np.float32([[embedding]])
    return State(v, np.zeros_like(v), [layer], [np.zeros_like(layer)])


def test_one_step_of_a_linear_hypernetwork() -> None:
    """W = 2, v = 3, D = 0.1, a = 0.1: W = 1.97, v = 2.98, and W v goes from 6 to 5.8706."""
    half = server("pfedhn", [1], Layout((Tensor("w", (1,), "head"),)), lr=0.1, **PLAIN)
    state = single(2, 3)
    assert half.instruct(state, 0, train=True).weights["shared"].parameters.tolist() == [6]
    state = half.update(state, [arrival(0, 1, delta=vec(-0.1))])  # delta is -D
    weight, v = float(state.layers[0][0, 0]), float(state.embeddings[0, 0])
    assert (weight, v, weight * v) == pytest.approx((1.97, 2.98, 5.8706))


def test_momentum_and_decay_are_those_of_sgd() -> None:
    half = server("pfedhn", [1], Layout((Tensor("w", (1,), "head"),)), lr=0.1, momentum=0.5, weight_decay=0.2)
    state = single(2, 0)
    weight, velocity = 2.0, 0.0
    for _ in range(3):
        state = half.update(state, [arrival(0, 1, delta=vec(1))])  # v = 0: no gradient but the decay
        velocity = 0.5 * velocity + 0.2 * weight
        weight -= 0.1 * velocity
        state.embeddings[:], state.embedding_velocities[:] = 0, 0
        assert float(state.layers[0][0, 0]) == pytest.approx(weight)


def test_gradients_are_those_of_differences() -> None:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal(shape) for shape in ((4, 4), (4, 5), (6, 5))]
    embeddings, deltas = rng.standard_normal((2, 3)), rng.standard_normal((2, 6))

    def value() -> float:
        return float((deltas * (inputs_of(layers, embeddings)[-1] @ layers[-1].T)).sum())

    inputs = inputs_of(layers, embeddings)
    assert (inputs[1][:, :-1] == 0).any()  # the ReLU acts; and not before the last layer
    assert (inputs[2][:, :-1] < 0).any()
    moves, errors = backward(layers, inputs, deltas)
    gradients = [error.T @ x for error, x in zip(errors, inputs, strict=True)]
    for array, gradient in zip([*layers, embeddings], [*gradients, moves], strict=True):
        for place in np.ndindex(array.shape):
            before = array[place]
            array[place] = before + 1e-6
            up = value()
            array[place] = before - 1e-6
            slope = (up - value()) / 2e-6
            array[place] = before
            assert gradient[place] == pytest.approx(slope, abs=1e-6)


def test_each_clients_gradient_is_clipped_by_its_whole_norm() -> None:
    rng = np.random.default_rng(1)
    layers = [rng.standard_normal(shape) for shape in ((4, 4), (6, 5))]
    embeddings, deltas = rng.standard_normal((2, 3)), rng.standard_normal((2, 6)) * [[1e-3], [1e3]]
    inputs = inputs_of(layers, embeddings)
    free, clipped = backward(layers, inputs, deltas), backward(layers, inputs, deltas, clip=50)
    for client, expected in ((0, None), (1, 50)):
        parts = [np.outer(error[client], x[client]) for error, x in zip(clipped[1], inputs, strict=True)]
        norm = np.sqrt(sum(np.square(part).sum() for part in [*parts, clipped[0][client]]))
        if expected is None:
            assert np.array_equal(clipped[0][0], free[0][0])
        assert norm == pytest.approx(expected or norm)


def test_with_biases_alone_it_is_fedavg_with_a_server_learning_rate() -> None:
    half = server("pfedhn", [1, 1], lr=0.5, **PLAIN)
    state = started(half, 1, 2, 3, 4, 5)
    for layer in (*state.layers[:-1], state.embeddings):
        layer[:] = 0
    deltas = [vec(1, 2, 3, 4, 5), vec(3, 2, 1, 0, -1)]
    state = half.update(state, [arrival(i, 1, delta=delta) for i, delta in enumerate(deltas)])
    for client in (0, 1):  # 0.5 for each of two arrivals: their mean
        made = half.instruct(state, client, train=True).weights["shared"].parameters
        np.testing.assert_allclose(made, [3, 4, 5, 6, 7])
    assert not state.embeddings.any()


def test_all_clients_start_from_the_common_model_and_then_differ() -> None:
    half = server("pfedhn", [1, 1, 1])
    state = started(half, 1, 2, 3, 4, 5)
    first = [half.instruct(state, c, train=True).weights["shared"].parameters for c in (0, 1, 2)]
    assert np.array_equal(first, [[1, 2, 3, 4, 5]] * 3)
    resting = state.embeddings[2].copy()
    for _ in range(2):
        state = half.update(state, [arrival(0, 1, delta=vec(1, 0, 0, 0, 0)), arrival(1, 1, delta=vec(0, 1, 0, 0, 0))])
    one, two = (half.instruct(state, c, train=False).weights["shared"].parameters for c in (0, 1))
    assert not np.allclose(one, two)
    assert np.array_equal(state.embeddings[2], resting)  # an absent client's embedding rests
    assert state.embeddings.shape == (3, 1)  # 1 + 3 // 4
    assert half.global_model(state) is None


def test_heads_may_stay_with_the_clients() -> None:
    half = server("pfedhn", [1], local_head=True)
    down = half.instruct(started(half, 1, 2, 3, 4, 5), 0, train=True)
    assert down.weights["shared"].parameters.tolist() == [1, 2, 3]
    assert (down.numbers, down.shared) == ({"private": "buffers,head"}, False)
    assert half.expects()["delta"].shape == (3,)


def test_a_large_model_is_refused_with_the_numbers() -> None:
    half = server("pfedhn", [1], Layout((Tensor("base.w", (1_000_001,), "base"), Tensor("head.w", (1,), "head"))))
    with pytest.raises(ConfigError, match=r"at most 1,000,000 parameters, not 1,000,002.*101 times.*local-head=true"):
        half.init(half.fleet.initial, half.fleet)


@pytest.mark.parametrize("keys", [(), ("pfedhn.local-head=true",)])
def test_statistics_of_batch_normalization_stay_with_the_clients(
    keys: tuple[str, ...], small: Small, finished: Finished
) -> None:
    config = small("algorithm=pfedhn", "model=cnn-bn", "local-steps=2", *keys)
    summary = finished(config)
    layout = TorchTask(config, client_data(config, 0), 10).layout
    size = layout.part("base" if keys else "all").size
    assert summary["bytes_up"] == 4 * 4 * 2 * size  # no buffers
