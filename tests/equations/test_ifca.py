"""IFCA: choices, averages and restarts by hand, against a transcription, and on planted clusters."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.clients.ifca import choice
from fedsim.clients.training import Samples
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Fleet
from fedsim.server.roll_call import roll_call
from fedsim.weights import Weights
from tests.equations.halves import SMALL, halves, server, vec
from tests.quadratics import Federation, sizes
from tests.resuming import check_resuming

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
A = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [0.5, 2.0]])
B = np.array([[3.0, 3.0], [-3.0, -2.0], [2.0, 3.0], [-2.0, -3.0]])
DRAWS = [Weights(vec(*values)) for values in ((0.5, -0.4), (7.0, 7.0), (-6.0, 8.0), (1.0, 1.0), (-1.0, -1.0))]


def ifca(count: int = 4, draws: int = 1, **params: Any) -> Any:
    """The server half of so many clients, with draws 10, 20, ... after the initial model."""
    strategy = server("ifca", [1, 3, 2, 2][:count], SMALL, **params)
    further = [Weights(vec(*[10.0 * number] * 3)) for number in range(1, draws + 1)]
    strategy.attach(Fleet(strategy.fleet.clients, SMALL, strategy.fleet.initial, draws=further))
    return strategy


def chose(client: int, cluster: int, *delta: float, size: int = 1, step: int = 0, staleness: int = 0) -> Arrival:
    uplink = Uplink(size, {"delta": Weights(vec(*delta))}, {"cluster": np.array([cluster])})
    return Arrival(client, step, uplink, 0.0, 1.0, staleness)


def models(state: Any) -> list[list[float]]:
    return [each.model.parameters.tolist() for each in state.models]


def test_updates_are_averaged_by_samples_where_they_were_trained_and_an_empty_cluster_stays() -> None:
    strategy = ifca(draws=2, clusters=3, restarts=0)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    assert models(state) == [[0] * 3, [10] * 3, [20] * 3]
    sent = [chose(0, 1, 4, 0, 0, size=1), chose(1, 1, 8, 4, 0, size=3), chose(2, 0, 1, 1, 1)]
    state = strategy.update(state, sent)
    assert models(state) == [[1, 1, 1], [17, 13, 10], [20] * 3]  # (3)
    assert strategy.clusters(state).tolist() == [1, 1, 0, -1]
    down = strategy.instruct(state, 0, train=True)
    assert [down.weights[f"cluster-{j}"].parameters[0] for j in range(3)] == [1, 17, 20]
    assert not down.shared


def test_a_stale_result_belongs_to_the_cluster_it_was_trained_for() -> None:
    strategy = ifca(count=2, clusters=2, restarts=0)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    strategy.fleet.busy[1] = 0  # trains from step 0 all the time
    state = strategy.update(state, [chose(0, 0, 2, 2, 2)])
    state = strategy.update(state, [chose(0, 1, 1, 0, 0, step=1)])  # the other client changes its mind meanwhile
    assert models(state) == [[2] * 3, [11, 10, 10]]
    state = strategy.update(state, [chose(1, 0, 5, 0, 0, step=0, staleness=2)])
    assert models(state) == [[5, 0, 0], [11, 10, 10]]  # its model is the one of step 0 plus its update
    assert strategy.clusters(state).tolist() == [1, 0]


def test_a_draw_without_a_cluster_is_replaced_and_its_late_results_are_dropped() -> None:
    strategy = ifca(draws=5, clusters=2, restarts=2, least=0.3)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    state = strategy.update(state, [chose(i, 1, 1, 1, 1) for i in range(3)])
    assert (state.draw, state.accepted) == (0, False), "one client has not chosen yet"
    state = strategy.update(state, [chose(3, 1, 1, 1, 1, step=1)])
    assert (state.draw, models(state)) == (1, [[20] * 3, [30] * 3])  # (4)
    assert strategy.clusters(state).tolist() == [-1] * 4
    state = strategy.update(state, [chose(0, 0, 9, 9, 9, step=1, staleness=1)])
    assert models(state) == [[20] * 3, [30] * 3]
    state = strategy.update(state, [chose(i, i // 3, 1, 1, 1, step=3) for i in range(4)])
    assert (state.draw, models(state)) == (2, [[40] * 3, [50] * 3]), "a quarter is less than 0.3"
    state = strategy.update(state, [chose(i, 0, 1, 1, 1, step=4) for i in range(4)])
    assert models(state) == [[41] * 3, [50] * 3], "the last draw is kept"


def test_a_draw_that_is_accepted_is_never_judged_again() -> None:
    strategy = ifca(draws=3, clusters=2, restarts=1)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    state = strategy.update(state, [chose(i, i % 2, 0, 0, 0) for i in range(4)])
    state = strategy.update(state, [chose(i, 0, 0, 0, 0, step=1) for i in range(4)])
    assert (state.accepted, state.draw) == (True, 0)


@pytest.mark.parametrize("cluster", [2, -1])
def test_a_cluster_that_does_not_exist_is_named(cluster: int, caplog: pytest.LogCaptureFixture) -> None:
    strategy = ifca(clusters=2, restarts=0)
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    with caplog.at_level(logging.WARNING):
        state = strategy.update(state, [chose(3, cluster, 1, 1, 1)])
    assert f"client 3 claims cluster {cluster} of 2" in caplog.text
    assert models(state) == [[0] * 3, [10] * 3]


def transcription(cohorts: list[list[int]], starts: Any, steps: int, lr: float) -> tuple[Any, list[int]]:
    """Algorithm 1 of the paper with model averaging, in float64."""
    theta, n, chosen = np.array(starts, np.float64), np.array(sizes(4)), [-1] * 4
    for cohort in cohorts:
        after = {}
        for i in cohort:
            losses = [0.5 * (A[i] * (model - B[i]) ** 2).sum() for model in theta]
            chosen[i] = int(np.argmin(losses))
            x = theta[chosen[i]].copy()
            for _ in range(steps):
                x -= lr * A[i] * (x - B[i])
            after[i] = x
        for j in range(len(theta)):
            if own := [i for i in cohort if chosen[i] == j]:
                theta[j] = np.average([after[i] for i in own], axis=0, weights=n[own])
    return theta, chosen


def test_it_is_the_papers_algorithm() -> None:
    cohorts = [[0, 1, 2, 3], [0, 3], [1, 2], [2], [0, 1, 2, 3]]
    federation = Federation("ifca", A, B, local_steps=3, lr=0.1, clusters=3, restarts=0, draws=DRAWS[:2])
    for cohort in cohorts:
        state = federation.round(*cohort)
    starts = [[0, 0], *(draw.parameters for draw in DRAWS[:2])]
    theta, chosen = transcription(cohorts, starts, 3, 0.1)
    np.testing.assert_allclose([each.model.parameters for each in state.models], theta, rtol=1e-4, atol=1e-5)
    assert federation.server.clusters(state).tolist() == chosen
    assert len(set(chosen)) == 2
    np.testing.assert_array_equal(federation.personal(1), state.models[chosen[1]].model.parameters)


def test_a_client_chooses_by_training_loss_and_reads_every_batch_once(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("algorithm=ifca", "ifca.clusters=3", "ifca.restarts=0")
    _, half, (task, *_) = halves(config)
    several = [task.initial(name) for name in ("model", "model:1", "model:2")]
    several[1] = task.fit(several[1], np.random.default_rng(0)).weights
    expected = [task.evaluate(model, "train")["loss"] for model in several]
    asked, read, ask, chunks = [], [], task.samples, Samples.chunks
    monkeypatch.setattr(task, "samples", lambda name: (asked.append(name), ask(name))[1])
    monkeypatch.setattr(Samples, "chunks", lambda own, size: (read.append(1), chunks(own, size))[1])
    assert task.losses(several) == pytest.approx(expected, rel=1e-5)
    assert (len(read), set(asked)) == (1, {"train"}), "one pass for all models"
    down = Downlink({f"cluster-{j}": model for j, model in enumerate(several)}, shared=False)
    assert choice(task, down)[0] == int(np.argmin(expected)) == 1
    personal = half.personalize(task, down, ClientState(), np.random.default_rng(0))
    uplink = half.train(task, down, ClientState(), np.random.default_rng(0))
    assert personal is several[1]
    assert uplink.arrays["cluster"].tolist() == [1]
    np.testing.assert_array_equal(uplink.weights["delta"].parameters, uplink.local.parameters - several[1].parameters)
    assert set(asked) == {"train"}, "tests are not looked at"


def test_a_model_with_a_loss_that_is_no_number_is_not_chosen(small: Small) -> None:
    _, _, (task, *_) = halves(small("algorithm=ifca"))
    broken = Weights(np.full(task.layout.size, np.inf, np.float32))
    assert choice(task, Downlink({"cluster-0": broken, "cluster-1": task.initial()}))[0] == 1


def test_initial_models_are_independent_draws(small: Small) -> None:
    config = small("algorithm=ifca", "ifca.clusters=2", "ifca.restarts=2")
    fleet, again = (roll_call(InlineGrid(config), config) for _ in range(2))
    drawn = np.stack([fleet.initial.parameters, *(draw.parameters for draw in fleet.draws)])
    assert len(drawn) == 2 * (2 + 1)
    cosines = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(cosines).max() < 0.2, "650 values each"
    np.testing.assert_allclose(drawn.std(axis=1), drawn.std(), rtol=0.1)
    np.testing.assert_array_equal(drawn[1:], [draw.parameters for draw in again.draws])


@pytest.mark.parametrize(
    "keys", [[], ["model=cnn-bn", "local-steps=2"], ["pace=window", "stragglers=periodic", "stragglers.count=2"]]
)
def test_one_cluster_is_fedavg(keys: list[str], small: Small, finished: Finished) -> None:
    ours = finished(small("algorithm=ifca", "ifca.clusters=1", "rounds=3", *keys), name="ifca")
    fedavg = finished(small("algorithm=fedavg", "rounds=3", *keys), name="fedavg")
    for kind in ("personal", "local"):
        assert ours["metrics"]["loss"][kind] == fedavg["metrics"]["loss"][kind]


def test_planted_clusters_are_recovered_from_random_starts(small: Small, finished: Finished) -> None:
    """Half of the clients have their digits upside down. Without restarts about 6 of 10 starts are good."""
    keys = ["partition=feature-shift", "partition.rotations=2", "clients=8", "rounds=7", "eval-every=7"]
    found = [
        finished(small("algorithm=ifca", *keys, f"seed={seed}", "checkpoint-every=0", "batch-size=32"), name=str(seed))
        for seed in range(10)
    ]
    clusters = [summary["clusters"]["per_client"] for summary in found]
    good = [own in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4) for own in clusters]
    assert sum(good) >= 9
    assert [summary["clusters"]["count"] for summary, ok in zip(found, good, strict=True) if ok] == [2] * sum(good)


def test_restarts_and_late_results_resume(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["pace=window", "stragglers=periodic", "stragglers.count=3", "rounds=6", "ifca.least=0.5"]
    check_resuming(small("algorithm=ifca", *keys), tmp_path, monkeypatch)
