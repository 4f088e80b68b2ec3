"""APPLE: cores and their weights by hand, the schedule of the penalty, downloads, and its limit, local training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.weights import Weights
from tests.equations.halves import SMALL, arrival, server, started, vec
from tests.quadratics import Federation

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def two_cores(**params: Any) -> Federation:
    """Client 0 with F = w^2 / 2 and core 1, weights (0.5, 0.5), and client 1 with core 3; 1 and 4 samples."""
    run = Federation("apple", [[1.0], [1.0]], [[0.0], [0.0]], local_steps=1, lr=0.1, p_lr=0.01, **params)
    run.state = run.server.update(run.state, [arrival(1, 4, model=vec(3))])
    run.state.step = 0
    run.states[0].weights["core"], run.states[0].arrays["p"] = Weights(vec(1)), vec(0.5, 0.5)
    return run


def test_a_step_of_core_and_weights_by_hand() -> None:
    """w = 0.5 * 1 + 0.5 * 3 = 2 = g: c = 1 - 0.1 * 0.5 * 2, p = 0.5 - 0.01 * 2 * (1, 3)."""
    run = two_cores(mu=0.0)
    uplink = run.train(0)
    assert uplink.weights["model"].parameters.tolist() == pytest.approx([0.9])
    assert run.states[0].arrays["p"].tolist() == pytest.approx([0.48, 0.44])
    assert run.personal(0).tolist() == pytest.approx([0.48 * 0.9 + 0.44 * 3])
    assert not uplink.arrays  # the weights are private
    assert list(run.server.expects()) == ["model"]


def test_the_penalty_pulls_weights_to_the_shares_of_samples() -> None:
    """In the first round lambda = 1; the shares are (0.2, 0.8)."""
    run = two_cores(mu=0.1)
    run.train(0)
    expected = [0.5 - 0.01 * (2 + 0.1 * 0.3), 0.5 - 0.01 * (6 - 0.1 * 0.3)]
    assert run.states[0].arrays["p"].tolist() == pytest.approx(expected)


def test_the_penalty_fades_as_a_cosine() -> None:
    half = server("apple", [1, 3], SMALL, mu=0.1, penalized=0.2)  # of 20 rounds
    state, found = started(half, 0, 0, 0), []
    for state.step in range(6):
        found.append(half.instruct(state, 0, train=True).numbers["penalty"])
    assert found == pytest.approx([0.1, 0.1 * (1 + 0.5**0.5) / 2, 0.05, 0.1 * (1 - 0.5**0.5) / 2, 0, 0])
    assert half.instruct(state, 0, train=True).arrays["shares"].tolist() == [0.25, 0.75]


def test_clients_receive_the_last_cores_of_the_others_and_only_to_train() -> None:
    half = server("apple", [1] * 3, SMALL)
    state = half.update(started(half, 1, 1, 1), [arrival(2, 1, model=vec(5, 6, 7))])
    down = half.instruct(state, 0, train=True)
    assert {name: core.parameters.tolist() for name, core in down.weights.items()} == {
        "peer-1": [1, 1, 1],
        "peer-2": [5, 6, 7],
    }
    assert half.instruct(state, 1, train=True).weights["peer-2"] is down.weights["peer-2"]  # copied once by engines
    assert half.instruct(state, 0, train=False).nbytes == 0


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_one_client_with_a_fixed_weight_trains_alone(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "clients=1", "local-steps=3", "momentum=0.5", "weight-decay=0.01", "batch-size=16")
    ours = finished(small("algorithm=apple", "apple.p-lr=0", *keys), name="apple")
    local = finished(small("algorithm=local", *keys), name="local")
    for kind in ("personal", "local"):
        assert ours["metrics"]["loss"][kind] == local["metrics"]["loss"][kind]


def test_with_a_limit_every_core_comes_once_before_one_comes_again() -> None:
    run = Federation("apple", [[1.0]] * 5, [[1.0]] * 5, local_steps=1, lr=0.1, downloads=2)
    assert list(run.server.instruct(run.state, 4, train=True).weights) == ["peer-0", "peer-1"]
    run.round()
    assert sorted(run.server.instruct(run.state, 4, train=True).weights) == ["peer-2", "peer-3"]
    old = run.states[4].weights["peer-0"].parameters.copy()
    run.round()
    assert np.array_equal(run.states[4].weights["peer-0"].parameters, old)  # the rest comes from memory
    asked = run.server.instruct(run.state, 4, train=True).weights
    assert len(asked) == 2
    assert "peer-4" not in asked
    for _ in range(8):
        run.round()
    assert run.personal(4)[0] > 0.1


def test_a_limit_that_limits_nothing_changes_nothing(small: Small, finished: Finished) -> None:
    free, all_three, one = (finished(small("algorithm=apple", f"apple.downloads={m}"), name=str(m)) for m in (0, 3, 1))
    assert free["weights_sha256"] == all_three["weights_sha256"] != one["weights_sha256"]
    assert one["bytes_down"] < free["bytes_down"] / 2


def test_negative_rates_are_refused(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"apple.p-lr must be at least 0"):
        small("algorithm=apple", "apple.p-lr=-1")
