"""LGA and PLGA: by hand, against a plain transcription of (8) to (14), and at their limits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.config import RunConfig
from fedsim.strategies.lga import sigmoid
from fedsim.weights import Weights
from tests.equations.halves import LAYOUT, SMALL, arrival, server, started, vec


def test_weights_by_hand() -> None:
    assert sigmoid(vec(1, 0, -1)) == pytest.approx([0.5, 0.2689, 0.1192], abs=5e-5)


def stale_by_two(name: str, **params: object) -> tuple[Any, Any]:
    """Client 0 works on W[0] = 0 while client 1 makes W[1] = (1, 0, 2) and W[2] = (2, 0, 2); then it arrives."""
    strategy = server(name, [10, 10], SMALL, **params)
    state = started(strategy, 0, 0, 0)
    strategy.fleet.busy[0] = 0
    state = strategy.update(state, [arrival(1, 10, 0, delta=vec(1, 0, 2))])
    state = strategy.update(state, [arrival(1, 10, 1, delta=vec(1, 0, 0))])
    assert sorted(state.history) == [0, 1]
    del strategy.fleet.busy[0]
    return strategy, strategy.update(state, [arrival(0, 10, 0, 2, delta=vec(1, 0, -1))])


def test_a_leap_by_hand() -> None:
    # base: S = 1, St = 0.5; head: S = -1. W[2] - W[1] = (1, 0, 0), so the leap is (0.5 * 1 + 1, 0, -1) from W[2]
    _, state = stale_by_two("lga")
    assert state.model.parameters == pytest.approx([3.5, 0, 1])
    assert state.history == {}
    assert stale_by_two("lga", equation="10")[1].model.parameters == pytest.approx([1.5, 0, -1])
    assert stale_by_two("lga", weight="raw")[1].model.parameters == pytest.approx([4, 0, 1])
    assert stale_by_two("lga", leap_scale=3.0)[1].model.parameters == pytest.approx([4.5, 0, 1])


def test_a_personalized_straggler_by_hand() -> None:
    strategy, state = stale_by_two("plga")
    assert state.model.parameters == pytest.approx([3.5, 0, 1])
    # 0.5 * 3.5 + 0.5 * 2; 0; 0.8808 * 1 + 0.1192 * 2
    assert state.personal[0] == pytest.approx([2.75, 0, 1.1192], abs=1e-4)
    down = strategy.instruct(state, 0, train=False)
    assert np.array_equal(down.model.parameters, state.model.parameters)
    assert np.array_equal(down.weights["personal"].parameters, state.personal[0])


def test_a_fresh_client_is_personalized_with_the_next_global_model() -> None:
    strategy = server("plga", [10, 30], SMALL)
    state = started(strategy, 1, 1, 1)
    state = strategy.update(state, [arrival(0, 10, delta=vec(4, 0, 4)), arrival(1, 30, delta=vec(4, 0, -4))])
    assert state.model.parameters.tolist() == [5, 1, -1]  # moved by (4, 0, -2)
    # client 0, base: S = 1, both agree on 4; head: S = -1: 1 + 0.8808 * 4 - 0.1192 * 2
    assert state.personal[0] == pytest.approx([5, 1, 1 + 0.8808 * 4 - 0.1192 * 2], abs=1e-3)
    assert state.personal[1] == pytest.approx([5, 1, 1 - 0.5 * 4 - 0.5 * 2])


def transcribed(W: Any, a: int, r: int, D: Any, equation: int, stages: Any) -> tuple[Any, Any]:
    """Equations (8) to (14) as printed, in float64."""
    leapt, personal = np.empty_like(D), np.empty_like(D)
    for s in stages:
        first = W[a + 1][s] - W[a][s]
        S = first @ D[s] / (np.linalg.norm(first) * np.linalg.norm(D[s]))  # (8)
        St = np.exp(S) / (np.exp(1) + np.exp(S))  # (9), (13)
        start = W[a][s] if equation == 10 else W[r][s]
        leapt[s] = start + St * D[s] * D[s] * (W[r][s] - W[a + 1][s]) + D[s]  # (10), (11)
        personal[s] = W[a][s] + (1 - St) * (leapt[s] - W[a][s]) + St * (W[r][s] - W[a][s])  # (14)
    return leapt, personal


@pytest.mark.parametrize("equation", [10, 11])
@pytest.mark.parametrize("granularity", ["stage", "tensor"])
@pytest.mark.parametrize("late", [1, 2, 4])
def test_against_the_transcription(equation: int, granularity: str, late: int) -> None:
    rng, sizes = np.random.default_rng(late), [10, 20, 30]
    strategy = server("plga", sizes, equation=str(equation), stages=granularity)
    stages = [slice(0, 3), slice(3, 5)] if granularity == "stage" else list(LAYOUT.slices.values())
    state = strategy.init(Weights(rng.normal(size=5).astype(np.float32)), strategy.fleet)
    strategy.fleet.busy[0] = 0
    W = [state.model.parameters.astype(float)]
    for r in range(late):
        deltas = rng.normal(size=(2, 5)).astype(np.float32)
        state = strategy.update(state, [arrival(i, sizes[i], r, delta=deltas[i - 1]) for i in (1, 2)])
        W.append(state.model.parameters.astype(float))
    del strategy.fleet.busy[0]
    own, other = rng.normal(size=(2, 5)).astype(np.float32)
    state = strategy.update(state, [arrival(0, 10, 0, late, delta=own), arrival(1, 20, late, delta=other)])
    leapt, personal = transcribed(W, 0, late, own.astype(float), equation, stages)
    expected = (10 * leapt + 20 * (W[late] + other)) / 30
    np.testing.assert_allclose(state.model.parameters, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(state.personal[0], personal, rtol=1e-6, atol=1e-6)


def test_one_round_late_is_the_update_moved_to_the_present_exactly() -> None:
    strategy = server("lga", [10, 10], SMALL)
    state = started(strategy, 0, 0, 0)
    strategy.fleet.busy[0] = 0
    state = strategy.update(state, [arrival(1, 10, 0, delta=vec(0.1, 0.2, 0.3))])
    del strategy.fleet.busy[0]
    moved = strategy.leap(state, arrival(0, 10, 0, 1, delta=vec(0.7, 0.8, 0.9)))
    assert moved.tolist() == vec(0.7, 0.8, 0.9).tolist()


def test_a_straggler_that_did_not_move_is_given_the_global_model() -> None:
    """w_k^r = W[r], so w_kp = W[r]; and a zero update has no direction: S = 0."""
    strategy = server("plga", [10, 10], SMALL)
    state = started(strategy, 0, 0, 0)
    strategy.fleet.busy[0] = 0
    state = strategy.update(state, [arrival(1, 10, 0, delta=vec(1, 2, 3))])
    del strategy.fleet.busy[0]
    state = strategy.update(state, [arrival(0, 10, 0, 1, delta=vec(0, 0, 0))])
    assert state.personal[0] == pytest.approx([1, 2, 3])


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_the_order_of_the_clients_does_not_matter(count: int, seed: int) -> None:
    """Client 0 of the first order is late by two rounds, wherever it stands in the other."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 100, count)
    deltas = rng.normal(size=(3, count, 5)).astype(np.float32)

    def outcome(order: Any) -> tuple[Any, Any]:
        strategy = server("plga", sizes[order].tolist())
        late, state = int(np.flatnonzero(order == 0)[0]), started(strategy, 0, 0, 0, 0, 0)
        strategy.fleet.busy[late] = 0
        for t in range(3):
            fresh = [arrival(i, int(sizes[j]), t, delta=deltas[t, j]) for i, j in enumerate(order) if j or t == 2]
            if t == 2:
                del strategy.fleet.busy[late]
                fresh[late] = arrival(late, int(sizes[0]), 0, 2, delta=deltas[2, 0])
            state = strategy.update(state, fresh)
        return state.model.parameters, state.personal

    order = rng.permutation(count)
    (theta, personal), (permuted, personals) = outcome(np.arange(count)), outcome(order)
    np.testing.assert_allclose(permuted, theta, atol=1e-5)
    np.testing.assert_allclose(personals, personal[order], atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_a_personal_model_lies_between_the_leapt_and_the_global_one(seed: int, late: int) -> None:
    """Nearer to the client's own: the global model's share is between 0.119 and 0.5, whatever the direction."""
    rng = np.random.default_rng(seed)
    strategy = server("plga", [10, 10])
    state = started(strategy, 0, 0, 0, 0, 0)
    strategy.fleet.busy[0] = 0
    for t in range(late):
        state = strategy.update(state, [arrival(1, 10, t, delta=rng.normal(size=5).astype(np.float32))])
    own = arrival(0, 10, 0, late, delta=rng.normal(size=5).astype(np.float32))
    leapt, current = state.model.parameters + strategy.leap(state, own), state.model.parameters.copy()
    moved, way = strategy.update(state, [own]).personal[0] - leapt, current - leapt
    assert (moved * np.sign(way) >= 0.119 * np.abs(way) - 1e-5).all()
    assert (moved * np.sign(way) <= 0.5 * np.abs(way) + 1e-5).all()


# On real training

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


def test_without_stragglers_lga_is_fedavg_bit_by_bit(small: Small, finished: Finished, tmp_path: Path) -> None:
    keys = ("rounds=4", "pace=window", "stragglers=periodic", "stragglers.count=0")
    plain = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert finished(small("algorithm=lga", *keys), name="lga")["weights_sha256"] == plain["weights_sha256"]
    personal = finished(small("algorithm=plga", *keys), name="plga")["accuracy"]
    assert personal["global"] == plain["accuracy"]["global"]
    with np.load(tmp_path / "fedavg" / "model.npz") as one, np.load(tmp_path / "plga" / "model.npz") as two:
        assert all(np.array_equal(one[name], two[name]) for name in one.files)


def test_stragglers_and_everyone_else_are_personalized(small: Small, finished: Finished) -> None:
    keys = ("algorithm=plga", "rounds=6", "stragglers=periodic", "stragglers.count=2")
    accuracy = finished(small(*keys))["accuracy"]
    assert None not in accuracy["personal"]["per_client"]
    assert accuracy["personal"] != accuracy["global"]
