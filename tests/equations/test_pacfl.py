"""PACFL: signatures and angles by hand, clusters of four sources, and its limits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.clients.pacfl import signature_of_classes
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.errors import FedsimError
from fedsim.partitions.client_data import ClientData, client_data
from fedsim.server.fleet import Client, Fleet
from fedsim.server.roll_call import roll_call
from tests.equations.halves import SMALL, arrival, params_of, server, vec

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def pacfl(*signatures: Any, **params: Any) -> Any:
    """The server half, attached to clients with these signatures (vectors x values)."""
    strategy = server("pacfl", [1] * len(signatures), SMALL, **params)
    clients = [Client(i, i, i + 1, 1, (1,), statistics={"signature": np.float32(u)}) for i, u in enumerate(signatures)]
    strategy.attach(Fleet(clients, SMALL, strategy.fleet.initial))
    return strategy


def data(x: Any, y: Any, classes: int = 3) -> ClientData:
    return ClientData(np.float32(x), np.array(y), np.float32(x), np.array(y), classes)


def direction(degrees: float) -> list[float]:
    return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees)), 0.0]


def test_a_signature_holds_the_strongest_directions_of_each_class() -> None:
    x = [[3, 0, 0, 0], [0, 0, 5, 0], [0, 1, 0, 0], [0, 0, 0, 2], [4, 0, 0, 0]]
    found = signature_of_classes(data(x, [0, 2, 0, 2, 0]), params_of("pacfl", p=1))["signature"]
    np.testing.assert_allclose(np.abs(found), [[1, 0, 0, 0], [0, 0, 1, 0]], atol=1e-6)
    assert found.dtype == np.float32
    more = signature_of_classes(data(x, [0, 2, 0, 1, 0]), params_of("pacfl", p=3))["signature"]
    assert len(more) == 3 + 1 + 1, "a class with one sample has one direction"


def test_data_without_classes_are_one_class() -> None:
    samples = data([[3, 0], [0, 1], [4, 0]], [0.5, 1.5, 2.5], classes=0)
    found = signature_of_classes(samples, params_of("pacfl", p=1))["signature"]
    np.testing.assert_allclose(np.abs(found), [[1, 0]], atol=1e-6)


def test_the_angle_is_the_smallest_between_two_vectors_of_either_sign() -> None:
    flipped = [-np.array(direction(30)), [0.0, 0.0, 1.0]]
    strategy = pacfl([direction(0)], flipped, [direction(100)])
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    np.testing.assert_allclose(state.angles, [[0, 30, 80], [30, 0, 70], [80, 70, 0]], atol=1e-3)
    assert strategy.matrices(state)["angles"] is state.angles


@pytest.mark.parametrize(
    ("beta", "expected"), [(9.0, [0, 1, 2, 3]), (11.0, [0, 0, 1, 2]), (22.0, [0, 0, 0, 1]), (46.0, [0] * 4)]
)
def test_clusters_are_those_of_wpgma(beta: float, expected: list[int]) -> None:
    """26 joins 0 and 10 at (26 + 16) / 2 = 21; 60 joins at ((60 + 50) / 2 + 34) / 2 = 44.5, not at (60 + 50 + 34) / 3."""
    strategy = pacfl(*[[direction(angle)] for angle in (0, 10, 26, 60)], beta=beta)
    assert strategy.clusters(strategy.init(strategy.fleet.initial, strategy.fleet)).tolist() == expected


def test_each_cluster_is_averaged_by_samples() -> None:
    strategy = pacfl([direction(0)], [direction(60)], [direction(1)])
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    sent = [arrival(i, i + 1, delta=vec(*[4.0 * (i + 1)] * 3)) for i in range(3)]
    state = strategy.update(state, sent)
    assert [each.model.parameters.tolist() for each in state.models] == [[(1 * 4 + 3 * 12) / 4] * 3, [8] * 3]  # (4)
    state = strategy.update(state, [arrival(1, 2, 1, delta=vec(1, 1, 1))])
    assert [each.model.parameters[0] for each in state.models] == [10, 9], "nobody of the first took part"


@pytest.mark.parametrize("broken", [np.zeros((0, 3)), np.full((1, 3), np.nan), np.ones((1, 2)), np.ones(3)])
def test_a_signature_that_does_not_fit_is_refused(broken: Any) -> None:
    strategy = pacfl([direction(0)], broken)
    with pytest.raises(FedsimError, match="pacfl needs a signature of every client's data, and samples of one shape"):
        strategy.init(strategy.fleet.initial, strategy.fleet)


def test_everyone_tells_its_signature_in_the_roll_call(small: Small) -> None:
    config = small("algorithm=pacfl", "pacfl.p=2")
    fleet = roll_call(InlineGrid(config), config)
    for client in fleet.clients:
        expected = signature_of_classes(client_data(config, client.id), params_of("pacfl", p=2))["signature"]
        np.testing.assert_array_equal(client.statistics["signature"], expected)
    plain = small("algorithm=fedavg")
    assert not roll_call(InlineGrid(plain), plain).clients[0].statistics


@pytest.mark.parametrize("participation", [1.0, 0.25])
def test_four_sources_are_found_before_the_first_round(participation: float, small: Small, finished: Finished) -> None:
    """Digits in four orientations; also clients that have not taken part yet are in their clusters."""
    keys = ["partition=feature-shift", "clients=8", "rounds=1", "pacfl.beta=12", f"participation={participation}"]
    found = finished(small("algorithm=pacfl", *keys))
    assert found["clusters"] == {"count": 4, "per_client": [0, 0, 1, 1, 2, 2, 3, 3]}


@pytest.mark.parametrize("keys", [[], ["model=cnn-bn", "local-steps=2"], ["participation=0.5"]])
def test_one_cluster_is_fedavg(keys: list[str], small: Small, finished: Finished) -> None:
    ours = finished(small("algorithm=pacfl", "pacfl.beta=180", "rounds=3", *keys), name="pacfl")
    fedavg = finished(small("algorithm=fedavg", "rounds=3", *keys), name="fedavg")
    for kind in ("personal", "local"):
        assert ours["metrics"]["loss"][kind] == fedavg["metrics"]["loss"][kind]


def test_clusters_of_one_client_are_local_training(small: Small, finished: Finished) -> None:
    ours = finished(small("algorithm=pacfl", "pacfl.beta=-1", "participation=0.5", "rounds=4"), name="pacfl")
    local = finished(small("algorithm=solo", "participation=0.5", "rounds=4"), name="solo")
    losses = [run["metrics"]["loss"]["personal"]["per_client"] for run in (ours, local)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert ours["clusters"]["count"] == 4
