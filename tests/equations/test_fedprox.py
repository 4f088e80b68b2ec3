"""FedProx: a transcription on quadratics, its limit, and its fine-tuned variant."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim.config import RunConfig
from tests.quadratics import Federation, sizes

A = np.array([[1.0, 4.0], [3.0, 0.2]])
B = np.array([[2.0, -1.0], [-3.0, 5.0]])
Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def transcription(mu: float, rounds: int, steps: int, lr: float) -> Any:
    w = np.zeros(2)
    for _ in range(rounds):
        models = []
        for a, b in zip(A, B, strict=True):
            x = w.copy()
            for _ in range(steps):
                x = x - lr * (a * (x - b) + mu * (x - w))
            models.append(x)
        w = np.average(models, axis=0, weights=sizes(2))
    return w


def test_it_is_the_papers_algorithm() -> None:
    for mu in (0.0, 0.3, 2.0):
        federation = Federation("fedprox", A, B, local_steps=6, lr=0.1, mu=mu)
        for _ in range(5):
            state = federation.round()
        np.testing.assert_allclose(state.model.parameters, transcription(mu, 5, 6, 0.1), rtol=1e-5, atol=1e-6)


def test_the_anchor_counts_and_without_it_is_fedavg(small: Small, finished: Finished) -> None:
    plain = finished(small("algorithm=fedavg"), name="plain")
    loose = finished(small("algorithm=fedprox", "fedprox.mu=0"), name="loose")
    held = finished(small("algorithm=fedprox", "fedprox.mu=1"), name="held")
    assert loose["weights_sha256"] == plain["weights_sha256"]
    assert held["weights_sha256"] != plain["weights_sha256"]


def test_fine_tuning_does_not_change_the_global_model(small: Small, finished: Finished) -> None:
    plain = finished(small("algorithm=fedprox", "fedprox.mu=0.5"), name="plain")
    tuned = finished(small("algorithm=fedprox-ft", "fedprox-ft.mu=0.5", "fedprox-ft.epochs=3"), name="tuned")
    assert tuned["weights_sha256"] == plain["weights_sha256"]
    assert tuned["accuracy"]["global"] == plain["accuracy"]["global"]
    assert tuned["accuracy"]["personal"] != plain["accuracy"]["personal"]
