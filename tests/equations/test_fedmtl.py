"""FedMTL: models held near the mean of the others, and its limits, which are local training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from tests.equations.halves import SMALL, arrival, server, started, vec
from tests.quadratics import Federation

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_a_client_receives_the_mean_of_the_others_last_models() -> None:
    half = server("fedmtl", [1, 1, 1], SMALL, lam=0.3)
    state = started(half, 1, 1, 1)
    state = half.update(state, [arrival(0, 1, model=vec(3, 0, 0)), arrival(2, 1, model=vec(0, 5, 0))])
    down = half.instruct(state, 0, train=True)
    assert down.weights["others"].parameters.tolist() == [0.5, 3, 0.5]  # client 1 counts with the initial model
    assert down.numbers["proximal"] == pytest.approx(2 * 0.3 * (1 - 1 / 3))
    state = half.update(state, [arrival(2, 1, model=vec(7, 7, 7))])
    assert half.instruct(state, 0, train=True).weights["others"].parameters.tolist() == [4, 4, 4]
    assert half.instruct(state, 0, train=False).nbytes == 0
    assert half.global_model(state) is None


def test_the_penalty_is_part_of_the_gradient_of_the_own_model() -> None:
    """w = (0, 1), lambda = 0.5, flat functions: the gradient at w_2 is 2 * 0.5 * (1 - 1/2) * (1 - 0) = 0.5."""
    run = Federation("fedmtl", [[0.0], [0.0]], [[0.0], [0.0]], local_steps=1, lr=0.1, lam=0.5)
    run.state = run.server.update(run.state, [arrival(1, 1, model=vec(1))])
    run.states[1].weights["model"] = run.server.sent(run.state.models, 1)
    uplink = run.train(1)
    assert uplink.weights["model"].parameters.tolist() == pytest.approx([1 - 0.1 * 0.5])
    assert run.personal(1).tolist() == pytest.approx([0.95])


def test_two_clients_meet_at_the_optimum_of_the_objective() -> None:
    """min (w_1 - 1)^2/2 + (w_2 + 1)^2/2 + lambda (w_1 - w_2)^2/2 has w_1 = -w_2 = 1 / (1 + 2 lambda)."""
    run = Federation("fedmtl", [[1.0], [1.0]], [[1.0], [-1.0]], local_steps=1, lr=0.2, lam=0.5)
    for _ in range(60):
        run.round()
    assert [float(run.personal(i)[0]) for i in (0, 1)] == pytest.approx([0.5, -0.5], abs=1e-5)


@pytest.mark.parametrize(("keys", "model"), [(["fedmtl.lam=0"], "cnn-bn"), (["clients=1"], "mlr")])
def test_without_a_penalty_or_without_others_it_is_local_training(
    keys: list[str], model: str, small: Small, finished: Finished
) -> None:
    common = (f"model={model}", "local-steps=2", *[key for key in keys if key.startswith("clients")])
    ours = finished(small("algorithm=fedmtl", *common, *keys), name="fedmtl")
    local = finished(small("algorithm=local", *common), name="local")
    for kind in ("personal", "local"):
        assert ours["metrics"]["loss"][kind] == local["metrics"]["loss"][kind]


def test_a_newcomer_starts_at_the_initial_model_and_a_negative_penalty_is_refused(small: Small) -> None:
    run = Federation("fedmtl", [[1.0], [1.0]], [[1.0], [1.0]], local_steps=1, lr=0.5, lam=0.25)
    run.round(0)
    uplink = run.train(1)  # from 0, gradient -1 + 0.25 * (0 - 0.5), though the others are at 0.5
    assert uplink.weights["model"].parameters.tolist() == pytest.approx([0.5625])
    with pytest.raises(ConfigError, match=r"fedmtl.lam must be at least 0"):
        small("algorithm=fedmtl", "fedmtl.lam=-1")
    assert np.isfinite(run.state.total).all()
