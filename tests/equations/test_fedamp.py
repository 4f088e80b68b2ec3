"""FedAMP and HeurFedAMP: weights by hand, limits, and the objective they were made for."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError
from fedsim.files import read_npz
from fedsim.partitions.client_data import client_data
from fedsim.report.relations import groups_by_data, inside_and_outside
from fedsim.report.runs import RunResult
from fedsim.results.matrices import matrix_files
from fedsim.results.record import read_events
from fedsim.schedule import Schedule
from fedsim.similarity import off_diagonal, squared_distances
from fedsim.strategies.attention import ATTENTIONS
from fedsim.strategies.fedamp import FedAMP, convex
from fedsim.strategies.heurfedamp import softmax_rows
from tests.quadratics import Federation

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
PAIRS = np.array([[0, 0], [0, 0], [5, 5], [5, 5]], np.float32)


def mixed(name: str, models: Any, cohort: Any = (), **params: Any) -> Any:
    """xi, and the state, when the clients have these models: one step of length 1 leads each to its own b."""
    state = Federation(name, np.ones(models.shape), models, local_steps=1, lr=1.0, **params).round(*cohort)
    return state.xi, state


def test_three_clients_by_hand() -> None:
    models = np.array([[0.0], [1.0], [3.0]], np.float32)
    xi, state = mixed("fedamp", models, sigma="4", alpha="0.8", lam="0.4")
    near, far, middle = (0.2 * np.exp(-x / 4) for x in (1, 9, 4))
    expected = [[1 - near - far, near, far], [near, 1 - near - middle, middle], [far, middle, 1 - far - middle]]
    np.testing.assert_allclose(xi, expected)
    np.testing.assert_allclose(state.clouds[:, 0], np.array(expected) @ [0, 1, 3], rtol=1e-6)
    np.testing.assert_allclose(state.pull, 0.5)


def test_a_tiny_scale_mixes_inside_pairs_only() -> None:
    xi, state = mixed("fedamp", PAIRS, sigma="1e-3", share=0.5)
    np.testing.assert_allclose(xi, np.kron(np.eye(2), np.full((2, 2), 0.5)))
    np.testing.assert_allclose(state.clouds, PAIRS)


@pytest.mark.parametrize("alpha", ["auto", "bound"])
def test_a_huge_scale_mixes_everyone_alike(alpha: str) -> None:
    xi, _ = mixed("fedamp", PAIRS, sigma="1e9", alpha=alpha)
    np.testing.assert_allclose(xi, np.full((4, 4), 0.3) + np.diag([0.1 - 0.3] * 4), rtol=1e-6)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("alpha", ["auto", "bound"])
def test_rows_are_convex_and_do_not_depend_on_the_scale_of_the_models(attention: str, alpha: str) -> None:
    models = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    xi, state = mixed("fedamp", models, attention=attention, alpha=alpha)
    large, _ = mixed("fedamp", 1000 * models, attention=attention, alpha=alpha)
    np.testing.assert_allclose(xi.sum(axis=1), 1)
    assert (xi >= 0).all()
    assert np.diagonal(xi).min() >= 0.1 - 1e-9
    np.testing.assert_allclose(xi, large, rtol=1e-4)
    assert state.sigma == pytest.approx(np.median(off_diagonal(squared_distances(state.models))) / 3)
    if alpha == "auto" and attention == "exponential":
        np.testing.assert_allclose(np.diagonal(xi), 0.1)


def test_each_client_has_the_step_that_gives_others_their_share() -> None:
    """Clients 0, 1 are near each other, 2, 3 ten times as far: both pairs have the same weights."""
    models = np.array([[0.0], [1.0], [40.0], [50.0]], np.float32)
    xi, state = mixed("fedamp", models, share=0.6, lam="2")
    wide = models.astype(np.float64)
    slopes = np.exp(-((wide - wide.T) ** 2) / state.sigma) / state.sigma - np.eye(4) / state.sigma
    expected = 0.6 * slopes / slopes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(off_diagonal(xi), off_diagonal(expected))
    np.testing.assert_allclose(np.diagonal(xi), 0.4)
    np.testing.assert_allclose(state.pull, 2 / (0.6 / slopes.sum(axis=1)))  # lambda over each one's step


def test_a_model_far_from_all_others_is_not_mixed() -> None:
    xi, _ = mixed("fedamp", np.array([[0.0], [1.0], [100.0]], np.float32), attention="mcp", sigma="1")
    np.testing.assert_allclose(xi, [[0.1, 0.9, 0], [0.9, 0.1, 0], [0, 0, 1]], atol=1e-12)


def test_the_scale_follows_the_models_or_stays_that_of_the_first_time() -> None:
    for sigma, kept in (("auto", False), ("first", True)):
        federation = Federation("fedamp", np.ones((4, 2)), PAIRS, local_steps=1, lr=0.5, sigma=sigma, sharpness=1.0)
        first = federation.round().sigma
        assert first == pytest.approx(np.median(off_diagonal(squared_distances(federation.state.models))))
        assert (federation.round().sigma == first) == kept


def test_equal_models_and_two_clients_have_a_scale_too() -> None:
    for models in (np.ones((3, 2), np.float32), np.array([[0.0], [1e3]], np.float32)):
        xi, _ = mixed("fedamp", models)
        np.testing.assert_allclose(off_diagonal(xi), 0.9 / (len(models) - 1))


def test_too_large_a_step_is_scaled_down_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"fedamp\.alpha is so large"):
        xi, _ = mixed("fedamp", PAIRS, sigma="1", alpha="1e4", min_self=0.2)
    np.testing.assert_allclose(np.diagonal(xi), 0.2)
    np.testing.assert_allclose(xi.sum(axis=1), 1)
    assert np.array_equal(convex(np.zeros((3, 3))), np.eye(3))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_slopes_are_the_derivatives(name: str) -> None:
    attention, t, h = ATTENTIONS[name], np.linspace(0.01, 6, 200), 1e-6
    numeric = (attention.value(t + h) - attention.value(t - h)) / (2 * h)
    np.testing.assert_allclose(attention.slope(t), numeric, atol=1e-5)
    zero = np.zeros(1)
    assert attention.value(zero) == 0
    assert attention.slope(zero) == 1
    assert (np.diff(attention.slope(t)) <= 0).all(), "concave"
    assert (attention.slope(t) >= 0).all(), "increasing"


def test_equal_cosines_share_alike() -> None:
    xi, _ = mixed("heurfedamp", np.eye(4, dtype=np.float32), sigma="50", self_weight=0.4)
    np.testing.assert_allclose(xi, np.full((4, 4), 0.2) + 0.2 * np.eye(4))
    scores = np.log([[1.0, 2.0, 6.0], [1.0, 1.0, 3.0], [9.0, 1.0, 5.0]])
    np.testing.assert_allclose(softmax_rows(scores, 0.2)[0], [0.2, 0.2, 0.6])


def test_cosines_of_models_from_one_start_need_the_scale_free_sigma() -> None:
    rng = np.random.default_rng(0)
    group = np.repeat(rng.standard_normal((2, 100)), 3, axis=0)
    models = (100 + group + 0.1 * rng.standard_normal((6, 100))).astype(np.float32)
    inside = np.kron(np.eye(2), np.ones((3, 3))).astype(bool) & ~np.eye(6, dtype=bool)
    outside = np.kron(1 - np.eye(2), np.ones((3, 3))).astype(bool)

    def ratio(xi: Any) -> float:
        return float(xi[inside].mean() / xi[outside].mean())

    assert ratio(mixed("heurfedamp", models, sigma="50")[0]) < 1.01
    xi, _ = mixed("heurfedamp", models)
    assert ratio(xi) > 5
    np.testing.assert_allclose(np.diagonal(xi), 1 / 6)
    np.testing.assert_allclose(xi.sum(axis=1), 1)


@pytest.mark.parametrize("name", ["fedamp", "heurfedamp"])
def test_absent_clients_keep_their_last_model_and_new_ones_get_the_initial_one(name: str) -> None:
    xi, state = mixed(name, PAIRS + 1, cohort=[0, 2])
    assert np.array_equal(xi[[1, 3]], np.eye(4)[[1, 3]])
    assert not xi[0, [1, 3]].any()
    assert not state.clouds[[1, 3]].any()
    federation = Federation(name, np.ones((4, 2)), PAIRS + 1, local_steps=1, lr=1.0)
    federation.round()
    before = federation.state.models.copy()
    federation.tasks[0].b[:] = 9
    federation.round(0)
    assert np.array_equal(federation.state.models[1:], before[1:])
    assert not np.array_equal(federation.state.models[0], before[0])


def test_the_first_round_is_plain_and_the_theorems_rule_gives_the_pull_after_it() -> None:
    federation = Federation(
        "fedamp", np.ones((4, 2)), PAIRS, local_steps=1, lr=0.1, lam="0.02", alpha="theorem", sigma="1"
    )
    assert federation.server.instruct(federation.state, 0, train=True).numbers == {"proximal": 0.0}
    federation.round()
    # alpha = lambda / sqrt(K), so lambda / alpha = sqrt(K), here of 20 rounds
    assert federation.server.instruct(federation.state, 0, train=True).numbers["proximal"] == pytest.approx(20**0.5)


def test_the_theorems_step_follows_a_schedule_of_lambda() -> None:
    federation = Federation(
        "fedamp", np.ones((4, 2)), PAIRS, local_steps=1, lr=0.1, lam="0.02:0.5:2", alpha="theorem", sigma="1e9"
    )
    for lam in (0.02, 0.02, 0.01, 0.01, 0.005):
        # with a huge scale A' is 1/sigma everywhere: xi_ij = alpha / sigma
        assert off_diagonal(federation.round().xi) * 1e9 == pytest.approx(lam / 20**0.5, rel=1e-4)
        np.testing.assert_allclose(federation.state.pull, 20**0.5)  # lambda / alpha


def test_own_start_and_cloud_start_differ_and_both_are_proximal() -> None:
    ends = {}
    for start in ("own", "cloud"):
        federation = Federation("fedamp", np.ones((4, 2)), PAIRS, local_steps=1, lr=0.1, pull=2.0, start=start)
        state = federation.round()
        cloud, own = state.clouds[0].copy(), state.models[0].copy()
        begin = own if start == "own" else cloud
        ends[start] = federation.round().models[0]
        np.testing.assert_allclose(ends[start], begin - 0.1 * (begin - PAIRS[0] + 2 * (begin - cloud)), rtol=1e-5)
    assert not np.array_equal(ends["own"], ends["cloud"])


@pytest.mark.parametrize("name", ["fedamp", "heurfedamp"])
def test_it_is_neither_local_training_nor_fedavg(name: str, small: Small, finished: Finished, tmp_path: Path) -> None:
    keys = ["rounds=4", "local-epochs=3", "partition=pathological"]
    losses = {}
    for algorithm in (name, "local", "fedavg"):
        finished(small(f"algorithm={algorithm}", *keys), name=algorithm)
        steps = [event for event in read_events(tmp_path / algorithm) if event["kind"] == "step"]
        losses[algorithm] = np.array([[row["loss"] for row in step["clients"]] for step in steps])
    assert np.array_equal(losses[name][0], losses["local"][0])  # the first round is local training
    for other in ("local", "fedavg"):
        assert (np.abs(losses[name][2:] - losses[other][2:]) > 1e-4).all()
    files = matrix_files(tmp_path / name)
    assert sorted(files) == [1, 2, 3, 4]
    np.testing.assert_allclose(read_npz(files[4])["xi"].sum(axis=1), 1)


@pytest.mark.parametrize(
    ("keys", "stays"),
    [
        (["algorithm=fedamp"], True),
        (["algorithm=heurfedamp"], True),
        (["algorithm=fedamp", "fedamp.sigma=first", "fedamp.sharpness=1", "fedamp.alpha=bound"], False),
    ],
    ids=["fedamp", "heurfedamp", "one step size at the scale of the median"],
)
def test_weights_are_largest_inside_a_group(
    keys: list[str], stays: bool, small: Small, finished: Finished, tmp_path: Path
) -> None:
    """Five groups by their dominating digits: twice the weight inside, with the scales that are not set by hand."""
    finished(small("partition=practical", "clients=15", "rounds=6", "local-epochs=3", "lr=0.1", "batch-size=16", *keys))
    groups = groups_by_data(RunResult.load(tmp_path / "run"))
    assert groups == [group for group in range(5) for _ in range(3)]
    weights = [inside_and_outside(read_npz(path)["xi"], groups) for path in matrix_files(tmp_path / "run").values()]
    assert len(weights) == 6
    assert all(inside > 2 * outside for inside, outside in weights) == stays


def test_the_objective_decreases_on_a_convex_problem(small: Small, tmp_path: Path, monkeypatch: Any) -> None:
    """Equation (1) after every round, for logistic regression on digits with the theorems' step size."""
    keys = ["algorithm=fedamp", "fedamp.alpha=theorem", "fedamp.lam=0.5", "fedamp.sigma=5", "local-epochs=10"]
    config = small(*keys, "rounds=9", "lr=0.02", "batch-size=2000", "partition=pathological")
    tasks = [TorchTask(config, client_data(config, i), 10) for i in range(4)]
    data = [client_data(config, i) for i in range(4)]
    values = []

    def objective(models: Any) -> float:
        losses = 0.0
        for task, own, model in zip(tasks, data, models, strict=True):
            weights, bias = (torch.tensor(part) for _, part in task.layout.split(model))
            logits = torch.tensor(own.x_train).flatten(1) @ weights.T + bias
            losses += float(torch.nn.functional.cross_entropy(logits, torch.tensor(own.y_train)))
        coupling = ATTENTIONS["exponential"].value(squared_distances(models) / 5).sum() / 2
        return float(losses + 0.5 * coupling)

    update = FedAMP.update

    def watched(self: Any, state: Any, arrivals: Any) -> Any:
        state = update(self, state, arrivals)
        values.append(objective(state.models))
        return state

    monkeypatch.setattr(FedAMP, "update", watched)
    launch(config.replace(out=str(tmp_path / "run")), "inline")
    assert len(values) == 9
    assert all(after < before for before, after in pairwise(values)), values


def test_schedules() -> None:
    assert Schedule.parse("k", "auto", ("auto",)) is None
    schedule = Schedule.parse("k", "1e4:0.1:30")
    assert schedule is not None
    assert [schedule.at(step) for step in (0, 29, 30, 89)] == pytest.approx([1e4, 1e4, 1e3, 1e2])
    for wrong in ("soon", "-1", "1:2", "1:0.1:0.5", "0", "inf"):
        with pytest.raises(ConfigError, match=r"k cannot be .*Choices: auto, a number above 0, START:FACTOR:ROUNDS"):
            Schedule.parse("k", wrong, ("auto",))


def test_invalid_parameters_are_refused(small: Small) -> None:
    for pairs, words in (
        (["fedamp.alpha=theorem"], "set fedamp.lam to a number"),
        (["fedamp.attention=flat"], "exponential"),
        (["fedamp.sigma=nearest"], "Choices: auto, first, a number above 0"),
        (["fedamp.sharpness=0"], "fedamp.sharpness must be above 0, not 0"),
        (["fedamp.share=1.5"], "fedamp.share must be above 0 and at most 1, not 1.5"),
        (["heurfedamp.self-weight=2"], "heurfedamp.self-weight must be at least 0 and at most 1, not 2"),
        (["scaffold.option=3"], "unknown scaffold.option '3'. Choices: 1, 2"),
        (["apfl.alpha=-1"], "apfl.alpha must be at least 0 and at most 1, not -1"),
    ):
        with pytest.raises(ConfigError, match=words):
            small(*pairs)
