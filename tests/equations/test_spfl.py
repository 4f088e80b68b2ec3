"""SPFL and SPFL-w: by hand, against a plain transcription of the equations, and at their limits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedsim.clients.task import layout_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.layout import Layout, Tensor
from fedsim.weights import Weights
from tests.equations.halves import LAYOUT, arrival, server, started, vec

STAGES = {"base": slice(0, 3), "head": slice(3, 5)}


def both(client: int, size: int, step: int, delta: Any, probe: Any) -> Any:
    return arrival(client, size, step, delta=delta, probe=probe)


def transcribed(
    deltas: Any,
    probes: Any,
    sizes: Any,
    gamma: int,
    alpha: float,
    mode: str,
    head: str,
    what: str,
    stages: Any = STAGES,
) -> Any:
    """Equations (3) to (7) as printed, entry by entry in float64. deltas and probes: rounds x clients x parameters."""
    rounds, count, width = deltas.shape
    w = np.zeros((count, width))
    n = sum(sizes)
    for t in range(rounds):
        if t % gamma == 0:
            w_g = sum(w[i] for i in range(count)) / count
            for i in range(count):
                w[i] = w_g
            sngs = {}
            for name, s in stages.items():
                g = [-probes[t, i, s] for i in range(count)]
                S = [[g[i] @ g[j] / np.sqrt(g[i] @ g[i] * (g[j] @ g[j])) for j in range(count)] for i in range(count)]
                sngs[name] = [
                    [np.exp(S[i][j]) / sum(np.exp(v) for v in S[i]) for j in range(count)] for i in range(count)
                ]
            if head == "identity":
                sngs["head"] = np.eye(count).tolist()
        new = w.copy()
        for name, s in stages.items():
            for i in range(count):
                row = [sizes[j] / n * sngs[name][i][j] for j in range(count)]
                if mode == "normalized":
                    row = [value / sum(row) for value in row]
                if what == "spfl":
                    new[i, s] = w[i, s] - alpha * sum(row[j] * -deltas[t, j, s] for j in range(count))
                else:
                    new[i, s] = sum(row[j] * (w[j, s] + deltas[t, j, s]) for j in range(count))
        w = new
    return w


@pytest.mark.parametrize("head", ["softmax", "identity"])
@pytest.mark.parametrize(
    ("name", "mode", "alpha"), [("spfl", "normalized", 1), ("spfl", "literal", 0.3), ("spfl-w", "normalized", 1)]
)
def test_twelve_rounds_against_the_transcription(name: str, mode: str, alpha: float, head: str) -> None:
    rng, sizes = np.random.default_rng(0), [10, 20, 50]
    deltas, probes = rng.normal(size=(2, 12, 3, 5)).astype(np.float32)
    strategy = server(name, sizes, gamma=5, weighting=mode, server_lr=alpha, head_mode=head)
    state = started(strategy, 0, 0, 0, 0, 0)
    for t in range(12):
        state = strategy.update(state, [both(i, sizes[i], t, deltas[t, i], probes[t, i]) for i in range(3)])
    expected = transcribed(deltas.astype(float), probes.astype(float), sizes, 5, alpha, mode, head, name)
    np.testing.assert_allclose(state.models, expected, rtol=1e-6, atol=1e-6)


class Residual(nn.Module):
    """A small network of ResNet's kind: four top-level children, so four stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3)
        self.block1, self.block2 = (nn.Sequential(nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2), nn.ReLU()) for _ in range(2))
        self.head = nn.Linear(2, 3)


@pytest.mark.parametrize("head", ["softmax", "identity"])
def test_a_residual_network_has_as_many_stages_as_parts(head: str) -> None:
    layout, rng, sizes = layout_of(Residual()), np.random.default_rng(4), [10, 20, 50]
    stages = {name: slice(parts[0].start, parts[-1].stop) for name, parts in layout.stages.items()}
    assert list(stages) == ["stem", "block1", "block2", "head"]
    deltas, probes = rng.normal(size=(2, 4, 3, layout.size)).astype(np.float32)
    strategy = server("spfl", sizes, layout, gamma=3, head_mode=head)
    state = strategy.init(Weights(np.zeros(layout.size, np.float32)), strategy.fleet)
    for t in range(4):
        state = strategy.update(state, [both(i, sizes[i], t, deltas[t, i], probes[t, i]) for i in range(3)])
    expected = transcribed(deltas.astype(float), probes.astype(float), sizes, 3, 1, "normalized", head, "spfl", stages)
    np.testing.assert_allclose(state.models, expected, rtol=1e-6, atol=1e-6)
    assert list(strategy.matrices(state)) == [f"similarity-{name}" for name in stages]


def test_two_clients_by_hand() -> None:
    strategy = server("spfl", [10, 10], gamma=10)
    state = started(strategy, 1, 1, 1, 1, 1)
    one = both(0, 10, 0, vec(1, 0, 0, 2, 0), vec(3, 0, 0, 1, 0))
    two = both(1, 10, 0, vec(0, 1, 0, 0, 2), vec(0, 5, 0, -1, 0))
    state = strategy.update(state, [one, two])
    # base: probes orthogonal, weights e/(e+1) = 0.73106 and 0.26894; head: opposite, e/(e+1/e) = 0.88080 and 0.11920
    assert state.similarity["base"].tolist() == [[1, 0], [0, 1]]
    assert state.similarity["head"].tolist() == [[1, -1], [-1, 1]]
    assert state.models[0] == pytest.approx([1.73106, 1.26894, 1, 1 + 2 * 0.88080, 1 + 2 * 0.11920], abs=1e-5)
    assert state.models[1] == pytest.approx([1.26894, 1.73106, 1, 1 + 2 * 0.11920, 1 + 2 * 0.88080], abs=1e-5)


def test_similarities_by_layer_are_recorded_and_change_nothing() -> None:
    """Base and head are one matrix each, without the bias of the base: (1, 0) and (1, 1) have the cosine 0.7071."""
    plain, recording = server("spfl", [10, 10]), server("spfl", [10, 10], record_layers=True)
    down = [
        both(0, 10, 0, vec(1, 0, 0, 2, 0), vec(1, 0, 9, 1, 0)),
        both(1, 10, 0, vec(0, 1, 0, 0, 2), vec(1, 1, 9, -1, 0)),
    ]
    states = [s.update(started(s, 1, 1, 1, 1, 1), down) for s in (plain, recording)]
    assert np.array_equal(states[0].models, states[1].models)
    found = recording.matrices(states[1])
    assert set(found) - set(plain.matrices(states[0])) == {"layer-base", "layer-head"}
    assert found["layer-base"] == pytest.approx(np.array([[1, 0.70711], [0.70711, 1]]), abs=1e-5)
    assert found["layer-head"].tolist() == [[1, -1], [-1, 1]]
    assert found["similarity-base"][0, 1] > 0.9  # the bias belongs to the stage


@pytest.mark.parametrize(
    ("others", "own", "other"), [(0.3, 0.1828, 0.0908), (0, 0.2320, 0.0853), (0.9, 0.1094, 0.0990)]
)
def test_published_weights_of_ten_clients(others: float, own: float, other: float) -> None:
    strategy = server("spfl", [7] * 10)
    state = started(strategy, 0, 0, 0, 0, 0)
    state.similarity["base"] = np.full((10, 10), others) + (1 - others) * np.eye(10)
    weights = strategy._weights(state, "base", list(range(10)), [arrival(i, 7) for i in range(10)])
    assert weights[0, :2] == pytest.approx([own, other], abs=5e-5)
    assert weights.sum(axis=1) == pytest.approx(np.ones(10))
    literal = server("spfl", [7] * 10, weighting="literal")
    weights = literal._weights(state, "base", list(range(10)), [arrival(i, 7) for i in range(10)])
    assert weights.sum(axis=1) == pytest.approx(np.full(10, 0.1))


@pytest.mark.parametrize("name", ["spfl", "spfl-w"])
def test_equal_similarities_are_fedavg(name: str) -> None:
    rng, probe = np.random.default_rng(1), vec(1, 2, 3, 4, 5)
    strategy, average = server(name, [30, 10]), server("fedavg", [30, 10])
    state, plain = (started(s, 1, 1, 1, 1, 1) for s in (strategy, average))
    for t in range(3):
        deltas = rng.normal(size=(2, 5)).astype(np.float32)
        state = strategy.update(state, [both(i, (30, 10)[i], t, deltas[i], probe) for i in range(2)])
        plain = average.update(plain, [arrival(i, (30, 10)[i], t, delta=deltas[i]) for i in range(2)])
        np.testing.assert_allclose(state.models, [plain.model.parameters] * 2, atol=1e-6)


def test_the_identity_is_local_training() -> None:
    strategy = server("spfl", [10, 30], Layout((Tensor("head.w", (2, 1), "head"),)), head_mode="identity", gamma=100)
    state = started(strategy, 1, 1)
    for t in range(2):
        state = strategy.update(state, [both(0, 10, t, vec(2, 0), vec(1, 1)), both(1, 30, t, vec(0, -3), vec(1, 1))])
    assert state.models.tolist() == [[5, 1], [1, -5]]


def test_gamma_one_starts_every_round_from_one_model_and_evaluates_before_that() -> None:
    rng = np.random.default_rng(2)
    strategy = server("spfl", [10, 10, 10], gamma=1)
    state = started(strategy, 0, 0, 0, 0, 0)
    for t in range(3):
        down = [strategy.instruct(state, i, train=True) for i in range(3)]
        assert all(d.model.parameters is down[0].model.parameters for d in down)
        assert all(d.shared and d.numbers["probe"] for d in down)
        assert all(np.array_equal(d.weights["personal"].parameters, state.models[i]) for i, d in enumerate(down))
        np.testing.assert_allclose(down[0].model.parameters, state.models.mean(axis=0), atol=1e-6)
        deltas = rng.normal(size=(3, 5)).astype(np.float32)
        state = strategy.update(state, [both(i, 10, t, deltas[i], deltas[i]) for i in range(3)])
    assert np.ptp(state.models, axis=0).max() > 0.1


def test_between_resets_a_client_receives_its_own_model() -> None:
    strategy = server("spfl", [10, 10], gamma=2)
    state = started(strategy, 0, 0, 0, 0, 0)
    state = strategy.update(
        state, [both(i, 10, 0, np.eye(5, dtype=np.float32)[i], vec(1, i, 0, 1, i)) for i in range(2)]
    )
    down = strategy.instruct(state, 1, train=True)
    assert list(down.weights) == ["model"]
    assert np.array_equal(down.model.parameters, state.models[1])
    assert (down.shared, down.numbers["probe"]) == (False, False)


def test_the_cheap_probe_is_the_training_itself() -> None:
    cheap, faithful = server("spfl", [10, 10], probe="cheap"), server("spfl", [10, 10])
    deltas = np.random.default_rng(3).normal(size=(2, 5)).astype(np.float32)
    start = [started(s, 0, 0, 0, 0, 0) for s in (cheap, faithful)]
    assert not cheap.instruct(start[0], 0, train=True).numbers["probe"]
    one = cheap.update(start[0], [arrival(i, 10, delta=deltas[i]) for i in range(2)])
    two = faithful.update(start[1], [both(i, 10, 0, deltas[i], deltas[i]) for i in range(2)])
    assert np.array_equal(one.models, two.models)
    with pytest.raises(FedsimError, match="client 0 was asked for a probe"):
        faithful.update(two, [arrival(0, 10, 0, delta=deltas[0])])


def test_absent_clients_neither_move_nor_contribute() -> None:
    strategy = server("spfl", [10, 10, 10])
    state = started(strategy, 0, 0, 0, 0, 0)
    state = strategy.update(state, [both(i, 10, 0, vec(1, 1, 1, 1, 1), vec(1, 1, 1, 1, 1)) for i in (0, 2)])
    assert state.models.tolist() == [[1] * 5, [0] * 5, [1] * 5]
    assert state.similarity["base"].round(6).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_two_results_of_one_client_both_count() -> None:
    strategy = server("spfl", [10, 10])
    state = started(strategy, 0, 0, 0, 0, 0)
    same = vec(1, 1, 1, 1, 1)
    state = strategy.update(state, [both(c, 10, 0, d * same, same) for c, d in ((0, 1), (0, 2), (1, 6))])
    assert state.models == pytest.approx(np.full((2, 5), 3.0))  # all alike: the mean of 1, 2 and 6


def test_a_client_that_did_not_move_has_no_direction() -> None:
    strategy = server("spfl", [10, 10])
    state = started(strategy, 0, 0, 0, 0, 0)
    still = vec(0, 0, 0, 0, 0)
    state = strategy.update(
        state, [both(0, 10, 0, still, still), both(1, 10, 0, vec(1, 1, 1, 1, 1), vec(1, 1, 1, 1, 1))]
    )
    assert state.similarity["base"].tolist() == [[1, 0], [0, 1]]
    assert np.isfinite(state.models).all()


def test_layer_mean_weighs_the_cosines_of_the_weight_tensors() -> None:
    names = [("base.1.weight", (2, 1)), ("base.1.bias", (1,)), ("base.2.weight", (1, 2)), ("base.3.weight", (2, 1))]
    layout = Layout((*(Tensor(n, s, "base") for n, s in names), Tensor("head.weight", (1, 1), "head")))
    strategy = server("spfl", [10, 10], layout, stage_similarity="layer-mean")
    state = strategy.init(Weights(np.zeros(8, np.float32)), strategy.fleet)
    one, two = vec(1, 0, 9, 1, 0, 1, 0, 1), vec(1, 0, -9, 0, 1, -1, 0, 1)  # cosines 1, (bias), 0, -1; head 1
    state = strategy.update(state, [both(0, 10, 0, one, one), both(1, 10, 0, two, two)])
    assert state.similarity["base"][0, 1] == pytest.approx(0.5 * 1 + 0.3 * 0 + 0.2 * -1)
    assert state.similarity["head"][0, 1] == 1


def test_buffers_stay_with_their_client_until_the_reset() -> None:
    layout = Layout(LAYOUT.parameters, (Tensor("norm.mean", (1,), "norm"),))
    strategy = server("spfl", [10, 10], layout, gamma=2)
    state = started(strategy, 0, 0, 0, 0, 0, buffers=[0])
    one = vec(1, 1, 1, 1, 1)

    def round_of(step: int, *own: float) -> Any:
        vectors = [{"delta": one, "probe": one, "buffers": vec(b)} for b in own]
        return strategy.update(state, [arrival(i, 10, step, **v) for i, v in enumerate(vectors)])

    state = round_of(0, 2, 4)
    assert [float(strategy.instruct(state, i, train=True).model.buffers[0]) for i in range(2)] == [2, 4]
    state = round_of(1, 6, 8)
    state = strategy.update(state, [arrival(0, 10, 2, delta=one, probe=one, buffers=vec(1))])
    assert state.buffers.tolist() == [[1], [7]]


def test_the_mean_model_of_a_reset_has_the_mean_buffers() -> None:
    layout = Layout(LAYOUT.parameters, (Tensor("norm.mean", (1,), "norm"),))
    strategy, one = server("spfl", [10, 10], layout, gamma=1), vec(1, 1, 1, 1, 1)
    state = started(strategy, 0, 0, 0, 0, 0, buffers=[0])
    state = strategy.update(
        state, [arrival(i, 10, 0, delta=one, probe=one, buffers=vec(b)) for i, b in ((0, 2), (1, 6))]
    )
    for client, own in ((0, 2), (1, 6)):
        down = strategy.instruct(state, client, train=True)
        assert down.model.buffers.tolist() == [4]
        assert down.weights["personal"].buffers.tolist() == [own]


def test_probes_of_different_resets_are_not_compared() -> None:
    """Clients 0 and 1 arrive late with probes of the reset at step 0, clients 2 and 3 with probes of that at step 1."""
    strategy = server("spfl", [10] * 4, gamma=1)
    state = started(strategy, 0, 0, 0, 0, 0)
    same, other = vec(1, 1, 1, 1, 1), vec(-1, -1, -1, -1, -1)
    state = strategy.update(state, [both(3, 10, 0, same, same)])
    late = [arrival(i, 10, 0, 1, delta=same, probe=probe) for i, probe in ((0, same), (1, other))]
    state = strategy.update(state, [*late, *(both(i, 10, 1, same, same) for i in (2, 3))])
    expected = [[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    for matrix in state.similarity.values():
        np.testing.assert_allclose(matrix, expected, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.sampled_from(["spfl", "spfl-w"]))
def test_the_order_of_the_clients_does_not_matter(count: int, seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 100, count)
    deltas, probes = rng.normal(size=(2, 3, count, 5)).astype(np.float32)

    def outcome(order: Any) -> Any:
        strategy = server(name, sizes[order].tolist(), gamma=2)
        state = started(strategy, 0, 0, 0, 0, 0)
        for t in range(3):
            arrivals = [both(i, int(sizes[j]), t, deltas[t, j], probes[t, j]) for i, j in enumerate(order)]
            for stage in STAGES:
                rows = strategy._weights(state, stage, list(range(count)), arrivals).sum(axis=1)
                np.testing.assert_allclose(rows, 1, rtol=1e-12)
            state = strategy.update(state, arrivals)
        return state.models

    order = rng.permutation(count)
    np.testing.assert_allclose(outcome(order), outcome(np.arange(count))[order], atol=2e-6)


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"spfl\.gamma must be at least 1"):
        server("spfl", [1], gamma=0)
    with pytest.raises(ConfigError, match=r"unknown spfl-w\.head-mode 'none'.*identity"):
        server("spfl-w", [1], head_mode="none")
    with pytest.raises(ConfigError, match="spfl-w mixes whole models"):
        server("spfl-w", [1], weighting="literal")


# On real training

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


def test_the_identity_on_every_stage_is_local_training(small: Small, finished: Finished) -> None:
    """A linear model has the head alone; one step per batch and no second reset leave every client to itself."""
    keys = ["spfl.head-mode=identity", "spfl.steps-per-batch=1", "spfl.gamma=100", "rounds=4"]
    alone = finished(small("algorithm=local", "rounds=4"), name="alone")["accuracy"]
    personal = finished(small("algorithm=spfl", *keys), name="spfl")["accuracy"]
    for kind in ("personal", "local"):
        assert personal[kind]["per_client"] == pytest.approx(alone[kind]["per_client"], abs=0.011)
        assert personal[kind]["best"] == pytest.approx(alone[kind]["best"], abs=0.005)


def test_a_round_with_a_reset_uploads_twice_as_much(small: Small, finished: Finished) -> None:
    def traffic(probe: str) -> int:
        keys = ("algorithm=spfl", "spfl.gamma=2", "rounds=4", f"spfl.probe={probe}")
        return int(finished(small(*keys), name=probe)["bytes_up"])

    assert traffic("faithful") == pytest.approx(1.5 * traffic("cheap"), rel=0.05)


def test_two_steps_per_batch_are_not_one(small: Small, finished: Finished) -> None:
    shas = {
        finished(small("algorithm=spfl", f"spfl.steps-per-batch={n}"), name=str(n))["weights_sha256"] for n in (1, 2)
    }
    assert len(shas) == 2


def test_fine_tuning_comes_after_the_last_round_only(small: Small, finished: Finished) -> None:
    keys = ("algorithm=spfl", "rounds=3", "batch-size=32")
    tuning = ("spfl.finetune-steps=30", "spfl.finetune-lr=0.05", "spfl.finetune-batch=16")
    plain, tuned = finished(small(*keys), name="plain"), finished(small(*keys, *tuning), name="tuned")
    assert tuned["weights_sha256"] == plain["weights_sha256"]
    assert tuned["accuracy"]["local"] == plain["accuracy"]["local"]
    assert tuned["accuracy"]["personal"]["final"] > plain["accuracy"]["personal"]["final"]
