"""FedDyn by hand, against the form of its authors' code, and on functions whose common optimum is known."""

from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from tests.equations.halves import arrival, params_of, server, started, vec
from tests.quadratics import Federation

A = [[1.0, 2.0], [4.0, 1.0], [1.0, 1.0]]
B = [[1.0, -1.0], [3.0, 2.0], [-2.0, 0.5]]


def test_two_rounds_by_hand() -> None:
    strategy = server("feddyn", [1, 9], alpha=0.5)  # sizes do not matter
    state = started(strategy, 1, 0, 0, 0, 0)
    state = strategy.update(state, [arrival(0, 1, delta=vec(1, 0, 0, 0, 0)), arrival(1, 9, delta=vec(3, 0, 0, 0, 0))])
    assert state.drift[0] == -1.0  # (3): -(0.5 / 2) * 4
    assert state.model.parameters[0] == 5.0  # 2 * mean(th_k) - th^0 = 2 * 3 - 1
    state = strategy.update(state, [arrival(1, 9, step=1, delta=vec(-2, 0, 0, 0, 0))])
    assert state.drift[0] == -0.5  # only the client that took part; m counts all
    assert state.model.parameters[0] == 4.0  # th_1 = 3, minus -0.5 / 0.5


def test_a_stale_model_is_averaged_and_its_drift_is_its_own() -> None:
    strategy = server("feddyn", [1, 1], alpha=0.5)
    strategy.fleet.busy = {1: 0}
    state = strategy.update(started(strategy, 1, 0, 0, 0, 0), [arrival(0, 1, delta=vec(1, 0, 0, 0, 0))])
    assert state.model.parameters[0] == 2.5  # 2 + 0.25 / 0.5
    late = arrival(1, 1, step=0, staleness=1, delta=vec(3, 0, 0, 0, 0))
    state = strategy.update(state, [late])
    assert state.drift[0] == -1.0  # -0.25 - 0.5 / 2 * 3
    assert state.model.parameters[0] == 6.0  # th_1 = 1 + 3, minus -1 / 0.5


class Official:
    """The authors' form: l_k is the sum of the drifts of client k; quadratics, full gradients, everyone or some."""

    def __init__(self, alpha: float, lr: float, steps: int) -> None:
        self.alpha, self.lr, self.steps = alpha, lr, steps
        self.cloud, self.sums = np.zeros(2), np.zeros((3, 2))

    def round(self, *who: int) -> Any:
        models = []
        for k in who or range(3):
            th = self.cloud.copy()
            for _ in range(self.steps):
                linear = self.alpha * (self.sums[k] - self.cloud)
                th -= self.lr * (np.multiply(A[k], th - B[k]) + linear + self.alpha * th)
            self.sums[k] += th - self.cloud
            models.append(th)
        self.cloud = np.mean(models, axis=0) + self.sums.mean(axis=0)
        return self.cloud


def test_the_form_of_the_authors_code_gives_the_same_models() -> None:
    ours = Federation("feddyn", A, B, local_steps=3, lr=0.05, alpha=0.5, clip=0.0)
    official = Official(0.5, 0.05, 3)
    for who in [(), (0, 1), (2,), (), (1, 2)]:
        assert ours.round(*who).model.parameters == pytest.approx(official.round(*who), abs=1e-5)
        assert ours.state.drift == pytest.approx(-0.5 * official.sums.mean(axis=0), abs=1e-5)


def test_it_reaches_the_optimum_of_the_sum_where_fedavg_does_not() -> None:
    optimum = np.multiply(A, B).sum(axis=0) / np.sum(A, axis=0)
    dynamic = Federation("feddyn", A, B, local_steps=10, lr=0.1, alpha=1.0)
    plain = Federation("fedavg", A, B, local_steps=10, lr=0.1)
    for _ in range(60):
        dynamic.round()
        plain.round()
    assert dynamic.state.model.parameters == pytest.approx(optimum, abs=1e-3)
    assert np.abs(plain.state.model.parameters - optimum).max() > 0.05


def test_gradients_of_the_loss_are_clipped() -> None:
    far = Federation("feddyn", [[1.0, 1.0]], [[3000.0, 4000.0]], local_steps=1, lr=0.1, alpha=0.1)
    assert far.round().model.parameters == pytest.approx([1.2, 1.6])  # 2 * lr * 10 * (0.6, 0.8)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"feddyn\.alpha must be above 0"):
        params_of("feddyn", alpha=0.0)
    with pytest.raises(ConfigError, match=r"feddyn\.clip must be at least 0"):
        RunConfig(sections={"feddyn": {"clip": -1}})
