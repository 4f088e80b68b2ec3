"""CFL: splits by hand, against a transcription of the authors' loop, and where they must and must not happen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering

from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.payload import Arrival
from tests.equations.halves import SMALL, arrival, server, started, vec
from tests.quadratics import Federation
from tests.resuming import check_resuming

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
OPPOSED = [(1.0, 0.0, 0.1), (-1.0, 0.1, 0.0), (1.0, 0.1, 0.0), (-1.0, 0.0, -0.1)]
NEVER, ALWAYS = {"eps1": 0.0}, {"eps1": 1e9, "eps2": 0.0, "start": 0}


def models(state: Any) -> list[list[float]]:
    return [each.model.parameters.tolist() for each in state.models]


def sent(step: int = 0, who: Any = range(4), staleness: int = 0) -> list[Arrival]:
    return [arrival(i, 5 + i, step, staleness, delta=vec(*OPPOSED[i])) for i in who]


def test_clients_that_move_apart_are_split_and_averaged_equally_inside_the_halves() -> None:
    cfl = server("cfl", [5, 6, 7, 8], SMALL, eps1=0.2, eps2=0.9, start=1)
    state = cfl.update(started(cfl, 1, 1, 1), sent())
    assert (len(state.models), state.parents) == (1, [-1]), "round 1 is not after `start`"
    np.testing.assert_allclose(models(state), [[1, 1.05, 1]], rtol=1e-6)  # (4), whatever the samples
    state = cfl.update(state, sent(1))
    assert cfl.clusters(state).tolist() == [0, 1, 0, 1]  # (3)
    assert state.parents == [-1, 0]
    np.testing.assert_allclose(models(state), [[2, 1.1, 1.05], [0, 1.1, 0.95]], rtol=1e-6)
    down = cfl.instruct(state, 3, train=True)
    assert (down.model is state.models[1].model, down.shared) == (True, False)
    assert list(cfl.instruct(state, 3, train=False).weights) == ["personal"]


@pytest.mark.parametrize("params", [{"eps1": 0.05}, {"eps2": 1.1}, {"start": 1}])
def test_each_condition_is_needed(params: dict[str, Any]) -> None:
    """The mean has norm 0.05 (0.1 / 2), the longest update 1.005."""
    assert len(split_of(**params)) == 1
    assert len(split_of()) == 2


def split_of(**params: Any) -> list[Any]:
    cfl = server("cfl", [1] * 4, SMALL, **{"eps1": 0.06, "eps2": 0.9, "start": 0, **params})
    found: list[Any] = cfl.update(started(cfl, 0, 0, 0), sent()).models
    return found


def test_two_clients_stay_together() -> None:
    cfl = server("cfl", [1, 1], SMALL, **ALWAYS)
    assert len(cfl.update(started(cfl, 0, 0, 0), sent(who=(0, 1))).models) == 1


@pytest.mark.parametrize("given", [{}, {"eps1": 0.3}, {"eps2": 3.0}])
def test_thresholds_are_shares_of_the_largest_norm_in_the_round_of_calibration(given: dict[str, float]) -> None:
    cfl = server("cfl", [1] * 4, SMALL, start=0, calibrate=2, **given)
    state = cfl.update(started(cfl, 0, 0, 0), sent())
    assert (state.scale, len(state.models)) == (0.0, 1), "nothing is split before it"
    state = cfl.update(state, [arrival(i, 1, 1, delta=vec(*OPPOSED[i]) * 3) for i in range(4)])
    assert state.scale == pytest.approx(3 * np.sqrt(1.01))
    assert len(state.models) == 2, "0.15 < 0.1 x 3.01, 3.01 > 0.4 x 3.01"


def test_absent_clients_count_with_their_last_update_for_splits_but_not_in_the_mean() -> None:
    cfl = server("cfl", [1] * 4, SMALL, eps1=0.2, eps2=0.9, start=0)
    state = cfl.update(started(cfl, 0, 0, 0), sent(0, (0, 1)))
    state = cfl.update(state, sent(1, (2,)))
    assert len(state.models) == 1, "client 3 was not heard from"
    before = state.models[0].model.parameters
    state = cfl.update(state, sent(2, (3,)))
    assert cfl.clusters(state).tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(models(state), [before, before + vec(*OPPOSED[3])], rtol=1e-6)


def test_a_result_from_before_the_split_joins_the_present_cluster_of_its_client() -> None:
    cfl = server("cfl", [1] * 4, SMALL, **ALWAYS)
    state = started(cfl, 5, 5, 5)
    state = cfl.update(state, sent())  # splits at once
    cfl.fleet.busy |= {1: 1, 3: 1}
    state = cfl.update(state, sent(1, (0, 2)))
    start = state.models[1].history[1]
    np.testing.assert_array_equal(start, state.models[1].model.parameters)
    state = cfl.update(state, sent(1, (1,), staleness=1))
    np.testing.assert_allclose(state.models[1].model.parameters, start + vec(*OPPOSED[1]), rtol=1e-6)


def transcription(a: Any, b: Any, rounds: int, steps: int, lr: float, eps: tuple[float, float], start: int) -> Any:
    """The authors' loop with full participation, in float64, and with their clustering of scikit-learn."""
    count = len(a)
    clusters, models = [np.arange(count)], [np.zeros(a.shape[1])]
    for number in range(1, rounds + 1):
        updates = np.zeros_like(a)
        for own, model in zip(clusters, models, strict=True):
            for i in own:
                x = model.copy()
                for _ in range(steps):
                    x -= lr * a[i] * (x - b[i])
                updates[i] = x - model
        after = []
        for own, model in zip(clusters, models, strict=True):
            mean, largest = np.linalg.norm(updates[own].mean(axis=0)), np.linalg.norm(updates[own], axis=1).max()
            if mean < eps[0] and largest > eps[1] and len(own) > 2 and number > start:
                unit = updates[own] / np.linalg.norm(updates[own], axis=1, keepdims=True)
                tool = AgglomerativeClustering(metric="precomputed", linkage="complete")
                names = tool.fit(-(unit @ unit.T)).labels_
                after += [(own[names == name], model) for name in (0, 1)]
            else:
                after.append((own, model))
        clusters = [own for own, _ in after]
        models = [model + updates[own].mean(axis=0) for own, model in after]
    return {tuple(own.tolist()): model for own, model in zip(clusters, models, strict=True)}


def planted(seed: int = 0, spread: float = 4.0) -> tuple[Any, Any]:
    """Seven clients with two kinds of optima, `spread` apart."""
    rng, kinds = np.random.default_rng(seed), np.array([0, 1, 1, 0, 1, 0, 0])
    centres = np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, -0.5]]) * spread / 2
    return rng.uniform(0.5, 1.5, (7, 3)), centres[kinds] + 0.1 * rng.standard_normal((7, 3))


def test_it_is_the_authors_loop() -> None:
    a, b = planted()
    federation = Federation("cfl", a, b, local_steps=3, lr=0.1, eps1=0.15, eps2=0.2, start=8)
    for _ in range(20):
        state = federation.round()
    expected = transcription(a, b, 20, 3, 0.1, (0.15, 0.2), 8)
    members = federation.server.clusters(state)
    found = {tuple(np.flatnonzero(members == c).tolist()): m.model.parameters for c, m in enumerate(state.models)}
    assert set(found) == set(expected) == {(0, 3, 5, 6), (1, 2, 4)}
    for own, model in expected.items():
        np.testing.assert_allclose(found[own], model, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_calibrated_thresholds_split_planted_clusters_and_nothing_else(seed: int) -> None:
    for spread, expected in ((4.0, [0, 1, 1, 0, 1, 0, 0]), (0.0, [0] * 7)):
        federation = Federation("cfl", *planted(seed, spread), local_steps=2, lr=0.1)
        if spread == 0:
            federation.state.models[0].model.parameters[:] = 3.0  # far from everyone's optimum, as a random start is
        for _ in range(60):
            federation.round()
        assert federation.server.clusters(federation.state).tolist() == expected


def test_without_splits_it_is_fedavg_of_equal_clients() -> None:
    """Bit for bit, with buffers and with results that are late."""
    layout, rng = Layout(SMALL.parameters, (Tensor("base.mean", (2,), "base"),)), np.random.default_rng(0)
    cfl, fedavg = server("cfl", [3, 9, 5], layout, **NEVER, start=0), server("fedavg", [7] * 3, layout)
    ours, theirs = (started(each, 1, 2, 3, buffers=(0, 0)) for each in (cfl, fedavg))
    for each in (cfl, fedavg):
        each.fleet.busy[2] = 0
    for step, who in enumerate(([0, 1], [1], [0, 1, 2])):
        deltas = {i: rng.standard_normal((2, 3)).astype(np.float32) for i in who}
        for name in ("cfl", "fedavg"):
            sizes = [3, 9, 5] if name == "cfl" else [7] * 3
            begun = {i: 0 if i == 2 else step for i in who}
            results = [
                arrival(i, sizes[i], begun[i], step - begun[i], buffers=d[1][:2], delta=d[0]) for i, d in deltas.items()
            ]
            if name == "cfl":
                ours = cfl.update(ours, results)
            else:
                theirs = fedavg.update(theirs, results)
        np.testing.assert_array_equal(ours.models[0].model.parameters, theirs.model.parameters)
        np.testing.assert_array_equal(ours.models[0].model.buffers, theirs.model.buffers)


@pytest.mark.parametrize(
    "keys", [[], ["participation=0.5"], ["pace=window", "stragglers=periodic", "stragglers.count=2"]]
)
def test_splits_resume(keys: list[str], small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = ["cfl.eps1=1e9", "cfl.eps2=0", "cfl.start=0", "clients=8", "rounds=6", "server-optimizer=momentum"]
    check_resuming(small("algorithm=cfl", *splits, *keys), tmp_path, monkeypatch)


def test_upside_down_digits_are_split_off(small: Small, finished: Finished) -> None:
    keys = ["cfl.start=3", "cfl.eps1=0.45", "cfl.eps2=0.6", "clients=6", "rounds=6", "lr=0.2", "batch-size=32"]
    shifted = ["partition=feature-shift", "partition.rotations=2"]
    found = finished(small("algorithm=cfl", *keys, *shifted), name="shifted")
    assert found["clusters"] == {"count": 2, "per_client": [0, 0, 0, 1, 1, 1]}
    assert finished(small("algorithm=cfl", *keys, "partition=iid"), name="iid")["clusters"]["count"] == 1
