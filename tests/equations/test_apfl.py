"""APFL on a quadratic, worked beside it in NumPy, and its limits."""

from typing import Any

import numpy as np
import pytest

from tests.quadratics import Federation, sizes

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
                direction = (own[i] - x) @ slope
                own[i] = own[i] - lr * alphas[i] * slope
                if adapt == "batch" or (adapt == "round" and step == 0):
                    alphas[i] = np.clip(alphas[i] - lr * direction, 0, 1)
            models.append(x)
        w = np.average(models, axis=0, weights=sizes(2))
    return w, own, alphas


@pytest.mark.parametrize("adapt", ["never", "round", "batch"])
def test_it_is_the_papers_algorithm(adapt: str) -> None:
    federation = Federation("apfl", A, B, local_steps=4, lr=0.02, alpha=0.4, adapt=adapt)
    for _ in range(3):
        state = federation.round()
    w, own, alphas = transcription(0.4, adapt, 3, 4, 0.02)
    np.testing.assert_allclose(state.model.parameters, w, rtol=1e-5)
    for i, kept in enumerate(federation.states):
        np.testing.assert_allclose(kept.weights["own"].parameters, own[i], rtol=1e-4)
        assert kept.numbers["alpha"] == pytest.approx(alphas[i], rel=1e-4)
        mixture = alphas[i] * own[i] + (1 - alphas[i]) * w
        np.testing.assert_allclose(federation.personal(i), mixture, rtol=1e-4)
    assert (adapt == "never") == (alphas == 0.4).all()


def test_the_global_model_is_that_of_fedavg() -> None:
    apfl, fedavg = (Federation(name, A, B, local_steps=4, lr=0.05) for name in ("apfl", "fedavg"))
    for _ in range(3):
        assert apfl.round().model.parameters.tolist() == fedavg.round().model.parameters.tolist()


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_at_its_limits_the_mixture_is_the_global_or_the_local_model(alpha: float) -> None:
    federation = Federation("apfl", A, B, local_steps=4, lr=0.05, alpha=alpha, adapt="never")
    federation.round()
    own = federation.states[1].weights["own"].parameters
    assert federation.personal(1).tolist() == (own if alpha else federation.state.model.parameters).tolist()
    assert own.any() == bool(alpha)  # without a say in the mixture it learns nothing
