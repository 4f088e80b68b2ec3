"""FedMA with growing layers: scores by hand, what matches and what stays apart, and what clients receive."""

import numpy as np
import pytest

from fedsim.clients.task import layout_of
from fedsim.clients.training import weights_of
from fedsim.layout import Layout, Tensor
from fedsim.strategies.unit_growth import GrowingLayer, GrowthParams, grown
from tests.equations.halves import arrival, server, vec
from tests.equations.test_fedma import network, shuffled

LAYOUT = Layout((Tensor("base.weight", (2, 1), "base"), Tensor("head.weight", (1, 2), "head")))


def test_scores_by_hand() -> None:
    layer = GrowingLayer(GrowthParams(gamma=6.0, sigma=0.5, sigma0=2.0), clients=3, width=1, prior=np.array([0.0, 0.1]))
    layer.place(np.array([[1.0, 2.0]]))
    row, s, s0 = np.array([[3.0, -1.0]]), 4.0, 0.25
    total = np.array([4.0, 0.025 + 8.0])  # s0 m + s w
    match = sum((s * w + t) ** 2 / (s + s0 + s) - t**2 / (s0 + s) for w, t in zip(row[0], total, strict=True))
    assert layer._match(row, np.array([0])) == pytest.approx(np.array([[match + np.log(1 / 2)]]))
    new = (12.0**2 + (-4 + 0.025) ** 2) / 4.25 - 0.25 * 0.1**2
    expected = [new + 2 * np.log(6 / 3), new - 2 * np.log(2) + 2 * np.log(6 / 3)]
    assert layer._new(row, 2) == pytest.approx(np.array([expected]))


def test_equal_units_match_and_others_grow() -> None:
    params, rng = GrowthParams(sigma=0.1), np.random.default_rng(0)
    one, two = np.array([[5.0, 0], [0, 5.0]]), np.array([[0, 5.0], [-5.0, -5.0]])
    (first, second), width = grown([one, two], [3, 1], params, False, rng)
    assert width == 3
    assert first[1] == second[0]  # the unit that both have
    assert len({*first.tolist(), second[1]}) == 3


def test_the_number_of_global_units_is_limited() -> None:
    rows = [10 * np.random.default_rng(seed).normal(size=(6, 4)) for seed in range(4)]
    _, free = grown(rows, [1] * 4, GrowthParams(sigma=0.1), False, np.random.default_rng(0))
    _, bound = grown(rows, [1] * 4, GrowthParams(sigma=0.1, most=8), False, np.random.default_rng(0))
    assert bound <= 8 < free


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_permuted_copies_come_back_as_they_were(name: str) -> None:
    """Nothing grows, and every client's part of the global network is its own model."""
    net = network(name, 0)
    strategy = server("fedma-growth", [1, 3, 2], layout_of(net), sigma=0.01, sigma0=0.05, sweeps=1)
    state = strategy.init(weights_of(net), strategy.fleet)
    copies = [shuffled(strategy.layers, weights_of(net).parameters, seed) for seed in range(3)]
    state = strategy.update(state, [arrival(i, i + 1, model=copy) for i, copy in enumerate(copies)])
    assert state.widths.tolist() == [layer.shape[0] for layer in strategy.layers[:-1]]
    np.testing.assert_allclose(state.models, copies, atol=1e-6)


def test_a_mean_is_over_those_who_have_the_units() -> None:
    strategy = server("fedma-growth", [1, 3, 1], LAYOUT, sigma=0.1)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    both = [arrival(0, 1, model=vec(4, -4, 1, 2)), arrival(1, 3, model=vec(4, 40, 5, 6))]
    state = strategy.update(state, both)
    assert state.widths.tolist() == [3]  # 4 is common, -4 and 40 are not
    assert state.models.tolist() == [
        [4, -4, 4, 2],  # outgoing weight of the common unit: (1 * 1 + 3 * 5) / 4
        [4, 40, 4, 6],
        [4, 40, 4, 6],  # was not there: the part of the client with most samples
    ]
