"""APFL on a quadratic, worked beside it in NumPy, and its limits."""

from typing import Any

import numpy as np
import pytest

from tests.quadratics import Federation

A = np.array([[1.0, 4.0], [3.0, 0.2]])
B = np.array([[2.0, -1.0], [-3.0, 5.0]])


def transcription(alpha: float, adapt: str, rounds: int, steps: int, lr: float) -> Any:
    w, own, alphas = np.zeros(2), np.zeros((2, 2)), np.full(2, alpha)
    for _ in range(rounds):
        models = []
        for i in range(2):
            x = w.copy()
            for step in range(steps):
                x = x - lr * A[i] * (x - B[i])
                slope = A[i] * (alphas[i] * own[i] + (1 - alphas[i]) * x - B[i])
                turn = (own[i] - x) @ slope
                own[i] = own[i] - lr * alphas[i] * slope
                if adapt == "batch" or (adapt == "round" and step == 0):
                    alphas[i] = np.clip(alphas[i] - lr * turn, 0, 1)
            models.append(x)
        w = np.mean(models, axis=0)
    return w, own, alphas


@pytest.mark.parametrize("adapt", ["never", "round", "batch"])
def test_it_is_the_papers_algorithm(adapt: str) -> None:
    federation = Federation("apfl", A, B, steps=4, lr=0.02, alpha=0.4, adapt=adapt)
    for _ in range(3):
        state = federation.round()
    w, own, alphas = transcription(0.4, adapt, 3, 4, 0.02)
    np.testing.assert_allclose(state.theta, w, rtol=1e-5)
    for i, memory in enumerate(federation.memories):
        np.testing.assert_allclose(memory.vectors["own"], own[i], rtol=1e-4)
        assert memory.numbers["alpha"] == pytest.approx(alphas[i], rel=1e-4)
    assert (adapt == "never") == (alphas == 0.4).all()


def test_the_global_model_is_that_of_fedavg() -> None:
    apfl, fedavg = (Federation(name, A, B, steps=4, lr=0.05) for name in ("apfl", "fedavg"))
    for _ in range(3):
        assert apfl.round().theta.tolist() == fedavg.round().theta.tolist()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_what_the_client_uses_is_all_shared_or_all_its_own(alpha: float) -> None:
    federation = Federation("apfl", A, B, steps=4, lr=0.05, alpha=alpha, adapt="never")
    federation.round()
    down = federation.server.instruct(federation.state, 1)
    used = federation.client.personalise(federation.tasks[1], down, federation.memories[1], np.random.default_rng(0))
    own = federation.memories[1].vectors["own"]
    assert used.vector.tolist() == (own if alpha else down.vectors["model"]).tolist()
    assert own.any() == bool(alpha)  # without a say in the mixture it learns nothing
