"""SCAFFOLD against a transcription of its own, on quadratics whose optimum is known."""

from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.clients.optimizers import step_weights
from fedsim.clients.scaffold import full_gradient
from fedsim.clients.task import TorchTask
from fedsim.partitions.client_data import client_data
from tests.quadratics import Federation

A = np.array([[1.0, 4.0, 0.5], [3.0, 0.2, 2.0], [0.7, 1.0, 1.0]])
B = np.array([[2.0, -1.0, 0.0], [-3.0, 5.0, 1.0], [1.0, 1.0, -4.0]])
OPTIMUM = (A * B).sum(axis=0) / A.sum(axis=0)


def transcription(option: int, cohorts: list[list[int]], steps: int, lr: float, eta: float, rho: float = 0.0) -> Any:
    """Algorithm 1 of the paper, line by line, in float64; momentum as torch has it."""
    x, c, own = np.zeros(3), np.zeros(3), np.zeros((3, 3))
    for cohort in cohorts:
        ys, news = [], []
        for i in cohort:
            y, v, weight, carried = x.copy(), np.zeros(3), 0.0, 0.0
            for _ in range(steps):
                v = rho * v + A[i] * (y - B[i]) - own[i] + c
                carried = rho * carried + 1
                weight += carried
                y = y - lr * v
            ys.append(y)
            news.append(A[i] * (x - B[i]) if option == 1 else own[i] - c + (x - y) / (lr * weight))
        dx = np.mean([y - x for y in ys], axis=0)
        dc = np.mean([new - own[i] for new, i in zip(news, cohort, strict=True)], axis=0)
        x, c = x + eta * dx, c + len(cohort) / 3 * dc
        for new, i in zip(news, cohort, strict=True):
            own[i] = new
    return x, c


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_it_is_the_papers_algorithm(option: int, rho: float) -> None:
    cohorts = [[0, 1, 2], [0, 2], [1], [0, 1, 2], [1, 2]]
    federation = Federation("scaffold", A, B, local_steps=4, lr=0.05, momentum=rho, option=option, eta=0.7)
    for cohort in cohorts:
        state = federation.round(*cohort)
    x, c = transcription(option, cohorts, 4, 0.05, 0.7, rho)
    np.testing.assert_allclose(state.model.parameters, x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.control, c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [{"option": 1}, {"option": 2}, {"option": 2, "momentum": 0.8}])
def test_it_converges_where_fedavg_drifts(settings: dict[str, Any]) -> None:
    scaffold = Federation("scaffold", A[:2], B[:2], local_steps=10, lr=0.02, **settings)
    fedavg = Federation("fedavg", A[:2], B[:2], local_steps=10, lr=0.02, momentum=settings.get("momentum", 0.0))
    optimum = (A[:2] * B[:2]).sum(axis=0) / A[:2].sum(axis=0)
    for _ in range(150):
        corrected, drifted = scaffold.round().model.parameters, fedavg.round().model.parameters
    assert np.abs(corrected - optimum).max() < 1e-3
    assert np.abs(drifted - optimum).max() > 0.1


def test_the_control_variate_is_the_mean_gradient_on_the_way() -> None:
    for momentum in (0.0, 0.9):
        federation = Federation("scaffold", A[:1], B[:1], local_steps=5, lr=0.1, momentum=momentum)
        federation.round()
        met = np.array(federation.tasks[0].met)
        counts = [(1 - momentum**left) / (1 - momentum) for left in range(5, 0, -1)]
        assert sum(counts) == pytest.approx(step_weights(5, momentum))
        expected = np.average(met, axis=0, weights=counts)
        np.testing.assert_allclose(federation.states[0].arrays["control"], expected, rtol=1e-4)
    assert step_weights(5, 0.0) == 5


def test_identical_clients_are_fedavg() -> None:
    same = np.repeat(A[:1], 3, axis=0), np.repeat(B[:1], 3, axis=0)
    scaffold, fedavg = (Federation(name, *same, local_steps=3, lr=0.1) for name in ("scaffold", "fedavg"))
    for _ in range(4):
        np.testing.assert_allclose(
            scaffold.round().model.parameters, fedavg.round().model.parameters, rtol=1e-5, atol=1e-6
        )


def test_the_servers_control_variate_moves_by_one_nth_of_each_client() -> None:
    federation = Federation("scaffold", A, B, local_steps=3, lr=0.1)
    state = federation.round(1)
    np.testing.assert_allclose(state.control, federation.states[1].arrays["control"] / 3, rtol=1e-6)  # 1/N, not 1/|S|


def test_the_full_gradient_is_that_of_all_data() -> None:
    config = configs.read(None, ["clients=2", "model=mlr", "batch-size=60", "lr=0.5", "local-epochs=1"])
    data = client_data(config, 0)
    task = TorchTask(config, data, 10)
    whole = config.replace(batch_size=len(data.y_train))
    stepped = TorchTask(whole, data, 10).fit(task.initial(), np.random.default_rng(0)).weights
    expected = (task.initial().parameters - stepped.parameters) / np.float32(0.5)
    np.testing.assert_allclose(full_gradient(task, task.initial(), np.random.default_rng(1)), expected, atol=2e-6)
