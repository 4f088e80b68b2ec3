"""FedNova: the steps behind an update, against real SGD; the server step, against a transcription of the paper."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.optimizers import SGD, step_weights
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Uplink
from fedsim.server import app
from fedsim.weights import Weights
from tests.equations.halves import SMALL, server, started, vec
from tests.quadratics import Federation, sizes

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
A = np.array([[1.0, 4.0], [3.0, 0.2], [0.7, 1.0]])
B = np.array([[2.0, -1.0], [-3.0, 5.0], [1.0, 1.0]])


@pytest.mark.parametrize(("steps", "rho"), [(1, 0.9), (2, 0.9), (7, 0.5), (20, 0.99), (5, 0.0)])
def test_with_momentum_it_is_the_papers_formula(steps: int, rho: float) -> None:
    formula = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
    assert step_weights(steps, rho) == pytest.approx(formula)
    assert (step_weights(1, 0.9), step_weights(2, 0.9)) == (1, pytest.approx(1.9 + 1))


def test_with_a_proximal_term_it_is_the_papers_recursion() -> None:
    a = 0.0
    for steps in range(1, 9):
        a = (1 - 0.1 * 0.3) * a + 1
        assert step_weights(steps, 0.0, pull=0.1 * 0.3) == pytest.approx(a)


@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.5), (0.6, 0.5)])
def test_it_is_how_far_sgd_gets_along_a_constant_gradient(rho: float, mu: float) -> None:
    x, lr = torch.zeros(1, dtype=torch.float64), 0.1
    optimizer = SGD([x], lr, momentum=rho)
    for steps in range(1, 8):
        x.grad = -1 + mu * x.detach()
        optimizer.step()
        assert step_weights(steps, rho, lr * mu) == pytest.approx(float(x) / lr)


def transcription(rounds: int, taus: list[int], lr: float, rho: float, mu: float) -> Any:
    """The paper's algorithm in float64, with a_i as the l1 norm of the factors of the gradients, found by superposition."""
    w, n = np.zeros(2), np.array(sizes(3), np.float64)
    p = n / n.sum()
    for _ in range(rounds):
        directions, norms = [], []
        for i, tau in enumerate(taus):
            x, v, met = w.copy(), np.zeros(2), []
            for _ in range(tau):
                met.append(A[i] * (x - B[i]))
                v = rho * v + met[-1] + mu * (x - w)
                x = x - lr * v
            factors = []
            for j in range(tau):  # what a gradient of 1 in step j alone would have moved
                moved = u = 0.0
                for k in range(tau):
                    u = rho * u + float(k == j) - lr * mu * moved
                    moved += u
                factors.append(moved)
            norms.append(np.abs(factors).sum())
            np.testing.assert_allclose(w - x, lr * np.dot(factors, met), atol=1e-12)
            directions.append((w - x) / norms[-1])
        w = w - (p @ norms) * (p @ np.array(directions))
    return w


@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.8, 0.0), (0.0, 0.7), (0.5, 0.7)])
def test_it_is_the_papers_algorithm(rho: float, mu: float) -> None:
    federation, taus = Federation("fednova", A, B, local_steps=1, lr=0.05, momentum=rho, mu=mu), [2, 5, 9]
    for task, tau in zip(federation.tasks, taus, strict=True):
        task.config = task.config.replace(local_steps=tau)
    for _ in range(4):
        state = federation.round()
    np.testing.assert_allclose(state.model.parameters, transcription(4, taus, 0.05, rho, mu), rtol=1e-4, atol=1e-5)


def test_it_reaches_the_optimum_that_fedavg_misses_when_clients_take_different_steps() -> None:
    p = np.array(sizes(3)) / sum(sizes(3))
    optimum = (p @ (A * B)) / (p @ A)
    found = {}
    for name in ("fednova", "fedavg"):
        federation = Federation(name, A, B, local_steps=1, lr=0.01)
        for task, tau in zip(federation.tasks, (1, 3, 20), strict=True):
            task.config = task.config.replace(local_steps=tau)
        for _ in range(120):
            found[name] = federation.round().model.parameters
    assert np.abs(found["fednova"] - optimum).max() < 0.2
    assert np.abs(found["fedavg"] - optimum).max() > 0.5


@pytest.mark.parametrize("keys", [[], ["model=cnn-bn"], ["pace=window", "stragglers=periodic", "stragglers.count=2"]])
def test_equal_steps_are_fedavg(keys: list[str], small: Small, finished: Finished) -> None:
    keys = ["local-steps=3", "momentum=0.9", "rounds=3", *keys]
    ours, fedavg = (finished(small(f"algorithm={name}", *keys), name=name) for name in ("fednova", "fedavg"))
    losses = [summary["metrics"]["loss"]["personal"]["per_client"] for summary in (ours, fedavg)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_a_client_without_steps_moves_nothing() -> None:
    fednova = server("fednova", [1, 3], SMALL)
    sent = [(0.0, vec(9, 9, 9)), (2.0, vec(2, 0, 4))]
    uplinks = [Uplink(n, {"delta": Weights(d)}, {"steps": vec(a)}) for n, (a, d) in zip((1, 3), sent, strict=True)]
    state = fednova.update(started(fednova, 1, 1, 1), [Arrival(i, 0, u, 0.0, 1.0) for i, u in enumerate(uplinks)])
    factor = (3 / 4 * 2.0) * (3 / 4) / 2.0  # tau_eff p_i / a_i
    np.testing.assert_allclose(state.model.parameters, 1 + factor * vec(2, 0, 4))


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_adam_is_refused_by_name(optimizer: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=f"fednova counts the steps of SGD.*optimizer={optimizer}.*use sgd"):
        app.build(small("algorithm=fednova", f"optimizer={optimizer}"))
