"""Steps of the server along the mean update: their equations, and which algorithms let a run choose them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.config import RunConfig, build
from fedsim.errors import ConfigError
from fedsim.server import app
from fedsim.server_optimizers import Moments
from tests.equations.halves import LAYOUT, arrival, server, started, vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]


def moved(name: str, mean: float = 0.1, steps: int = 1, **params: Any) -> float:
    """How far a parameter moves in so many steps along the same mean update."""
    kind = registry.find("server-optimizer", name)
    optimizer, moments, w = kind(build(kind.params, params)), Moments(), vec(0)
    for t in range(1, steps + 1):
        w = optimizer(w, vec(mean), moments, t)
        assert w.dtype == np.float32
    return float(w[0])


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("adagrad", {}, 0.099005),
        ("adam", {}, 0.0905028),
        ("yogi", {}, 0.0904988),
        ("adagrad", {"v0": 0.0}, 0.0990099),
        ("adam", {"v0": 0.0}, 0.0909091),
        ("yogi", {"v0": 0.0}, 0.0909091),
        ("adam", {"v0": 0.0, "correct": True}, 0.0909091),  # the authors' code: the factor of the first step is 1
        ("sgd", {}, 0.1),
        ("sgd", {"lr": 0.5}, 0.05),
        ("momentum", {"beta": 0.9}, 0.1),
    ],
)
def test_the_first_step_by_hand(name: str, params: dict[str, Any], expected: float) -> None:
    assert moved(name, **params) == pytest.approx(expected, rel=2e-6)


def test_later_steps_by_hand() -> None:
    assert moved("momentum", steps=3, beta=0.5, lr=2.0) == pytest.approx(2 * 0.1 * (1 + 1.5 + 1.75))
    m = v = w = 0.0
    for t in (1, 2, 3):
        m, v = 0.9 * m + 0.1 * 0.1, 0.99 * v + 0.01 * 0.01
        w += 0.1 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 0.001)
    assert moved("adam", steps=3, v0=0.0, correct=True) == pytest.approx(w, rel=1e-5)
    assert moved("adagrad", steps=2, v0=0.0, tau=1e-6) == pytest.approx(0.1 * (1 + 0.5**0.5), rel=1e-4)


def test_yogi_moves_its_second_moment_in_both_directions() -> None:
    yogi = registry.find("server-optimizer", "yogi")(build(registry.find("server-optimizer", "yogi").params, {}))
    assert yogi.second(vec(1, 0, 4), vec(0.5, 2, 4)) == pytest.approx(vec(1 - 0.005, 0.02, 4))


@pytest.mark.parametrize("name", ["adam", "yogi", "adagrad"])
def test_a_large_denominator_is_fedavg(name: str) -> None:
    assert moved(name, 0.37, v0=0.0, beta1=0.0, tau=1e6, lr=1e6) == pytest.approx(0.37, rel=1e-6)
    if name != "adagrad":  # with v_0 = tau^2 the denominator is twice tau
        assert moved(name, 0.37, beta1=0.0, tau=1e6, lr=1e6) == pytest.approx(0.37 / 2, rel=1e-2)


def stepping(name: str, optimizer: str, **keys: Any) -> Any:
    strategy = server(name, [1, 3])
    values = {"server-optimizer": {key: str(value) for key, value in keys.items()}}
    strategy.config = strategy.config.replace(server_optimizer=optimizer, sections=values)
    return strategy


def test_buffers_are_averaged_and_only_parameters_step() -> None:
    strategy = stepping("fedavg", "momentum", lr=2, beta=0)
    arrivals = [arrival(i, n, delta=vec(*[4.0] * 5), buffers=vec(b)) for i, (n, b) in enumerate([(1, 1.0), (3, 5.0)])]
    after = strategy.update(started(strategy, 0, 0, 0, 0, 0, buffers=[0.0]), arrivals)
    assert after.model.parameters.tolist() == [8] * 5
    assert after.model.buffers.tolist() == [4]


def test_stale_updates_enter_as_they_are_unless_models_are_averaged() -> None:
    """The client started from 0, the global model is at 2 now, and the update is 1."""

    def after(optimizer: str, **keys: Any) -> float:
        strategy = stepping("fedavg", optimizer, **keys)
        strategy.fleet.busy = {0: 0}
        state = strategy.update(started(strategy, 0, 0, 0, 0, 0), [arrival(1, 3, delta=vec(*[2.0] * 5))])
        first = float(state.model.parameters[0])
        late = strategy.update(state, [arrival(0, 1, staleness=1, delta=vec(*[1.0] * 5))])
        return float(late.model.parameters[0]) - first

    assert after("sgd") == 1 - 2  # the mean of the models is the stale one
    assert after("sgd", lr=0.5) == 0.5 * (1 - 1)
    assert after("momentum", beta=0) == 1
    assert after("momentum", beta=0.5) == 0.5 * 2 + 1


def test_a_part_has_moments_of_that_part() -> None:
    strategy = stepping("fedper", "adam")
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    size = LAYOUT.part("base").size
    state = strategy.update(state, [arrival(0, 1, delta=np.ones(size, np.float32))])
    assert {name: moment.size for name, moment in state.moments.items()} == {"first": size, "second": size}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("fedavgm", "momentum"), ("fedadam", "adam"), ("fedyogi", "yogi"), ("fedadagrad", "adagrad")],
)
def test_the_four_names_are_fedavg_with_that_optimizer(
    name: str, optimizer: str, small: Small, finished: Finished
) -> None:
    key = "server-optimizer.lr=0.03"
    named = finished(small(f"algorithm={name}", key), name="named")
    chosen = finished(small("algorithm=fedavg", f"server-optimizer={optimizer}", key), name="chosen")
    assert named["weights_sha256"] == chosen["weights_sha256"]
    replaced = finished(small(f"algorithm={name}", "server-optimizer=sgd"), name="replaced")
    assert replaced["weights_sha256"] == finished(small(), name="fedavg")["weights_sha256"]


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("server-optimizer=lamb", "unknown server-optimizer 'lamb'.*Choices: adagrad, adam, auto, momentum, sgd, yogi"),
        ("server-optimizer.tau=1", "unknown config key 'server-optimizer.tau'.*server-optimizer.lr"),
        ("server-optimizer.lr=0", "server-optimizer.lr must be above 0"),
    ],
)
def test_nonsense_is_refused(pair: str, told: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=told):
        small(pair)
    with pytest.raises(ConfigError, match=r"server-optimizer\.v0 must be at least 0"):
        small("server-optimizer=adam", "server-optimizer.v0=-1")
    assert small("server-optimizer=adam", "server-optimizer.v0=none").params("server-optimizer").v0 is None


@pytest.mark.parametrize("keys", [["server-optimizer=adam"], ["server-optimizer.lr=0.5"]])
def test_algorithms_without_such_a_step_are_refused(keys: list[str], small: Small) -> None:
    for name in ("local", "fedamp", "fedasync", "spfl", "twafl", "fedproto"):
        told = rf"{name} takes no step along a mean .*Algorithms that do: .*fedavg, .*fedper, .*scaffold"
        with pytest.raises(ConfigError, match=told):
            app.build(small(f"algorithm={name}", *keys))
        app.build(small(f"algorithm={name}", "server-optimizer=sgd"))
