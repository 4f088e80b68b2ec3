"""FedPAC: the weights of heads by hand and against their optimality conditions, the two phases, what travels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.algorithm import ClassStatistics
from fedsim.clients.fedpac import FedPacClient, data_moments
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.fedpac import head_weights
from fedsim.strategies.simplex import least_on_simplex
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]


# The quadratic program


def test_least_on_the_simplex_by_hand() -> None:
    np.testing.assert_allclose(least_on_simplex(np.diag([1.0, 3.0])), [0.75, 0.25], rtol=1e-8)
    np.testing.assert_allclose(least_on_simplex(np.diag([1.0, 2.0, 4.0])), np.array([4, 2, 1]) / 7, rtol=1e-8)
    against = np.array([[1.0, 2.0], [2.0, 5.0]])  # without the bound the second weight is negative
    np.testing.assert_allclose(least_on_simplex(against), [1, 0], atol=1e-12)
    np.testing.assert_allclose(least_on_simplex(np.zeros((4, 4))), [0.25] * 4)
    np.testing.assert_allclose(least_on_simplex(np.ones((3, 3))).sum(), 1)  # every point is optimal


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize("rank", [1, 3, 60])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_optimum_satisfies_its_conditions(count: int, rank: int, scale: float) -> None:
    """a >= 0, sum a = 1, and (Q a)_j is the same wherever a_j > 0 and nowhere less."""
    rng = np.random.default_rng(count + rank)
    factor = rng.normal(size=(count, rank)) + rng.normal(size=rank)
    form = scale * (factor @ factor.T + np.diag(rng.random(count)))
    a = least_on_simplex(form)
    slopes = form @ a
    assert a.min() >= 0
    assert a.sum() == pytest.approx(1)
    assert slopes.min() >= (a @ slopes) * (1 - 1e-6)
    np.testing.assert_allclose(slopes[a > 1e-6], a @ slopes, rtol=1e-6)


def test_weights_of_heads_by_hand() -> None:
    apart = np.array([[0.0, 0.0], [1.0, 1.0]])  # |h_1 - h_2|^2 = 2
    np.testing.assert_allclose(head_weights(apart, np.ones(2)), [[0.75, 0.25], [0.25, 0.75]], rtol=1e-8)
    same, v = np.full((3, 4), 0.3), np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(head_weights(same, v), [np.array([4, 2, 1]) / 7] * 3, rtol=1e-6)
    np.testing.assert_allclose(head_weights(same, np.full(3, 0.2)), np.full((3, 3), 1 / 3), rtol=1e-6)
    far = np.array([[0.0], [0.0], [100.0]])
    rows = head_weights(far, np.ones(3))
    np.testing.assert_allclose(rows, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], atol=1e-9)  # cut below 0.001
    np.testing.assert_allclose(head_weights(far + 1e6, np.ones(3)), rows, atol=1e-9)


def test_moments_of_the_data_by_hand() -> None:
    """Features {1, 3} of class 0 and {2} of class 1; class 2 is lacking."""
    h, v = data_moments(ClassStatistics(np.array([2, 1, 0]), np.float32([[2], [2], [0]]), np.float32([5, 4, 0])))
    np.testing.assert_allclose(h, [[4 / 3], [2 / 3], [0]], rtol=1e-6)
    assert v.item() == pytest.approx(22 / 27)


# The server


def server_of(labels: list[tuple[int, int]], **params: Any) -> Any:
    layout = Layout(
        (Tensor("base.w", (1,), "base"), Tensor("head.weight", (2, 1), "head"), Tensor("head.bias", (2,), "head"))
    )
    algorithm = registry.find("algorithm", "fedpac")
    server = algorithm.server(params_of("fedpac", **params), RunConfig(clients=len(labels)))
    clients = [Client(i, i, sum(own), 1, own) for i, own in enumerate(labels)]
    server.attach(Fleet(clients, layout, Weights(np.zeros(5, np.float32))))
    return server


def sent(client: int, delta: float, head: float, prototypes: list[float], h: list[float], v: float = 1.0) -> Arrival:
    weights = {"delta": Weights(np.float32([delta])), "head": Weights(np.full(4, head, np.float32))}
    arrays = {"prototypes": np.float32(prototypes)[:, None], "h": np.float32(h)[:, None], "v": np.float32([v])}
    return Arrival(client, 0, Uplink(4, weights, arrays), 0.0, 1.0)


def test_a_round_of_the_server_by_hand() -> None:
    server = server_of([(3, 1), (1, 0), (0, 5)])
    state = server.init(server.fleet.initial, server.fleet)
    assert server.instruct(state, 0, train=True).arrays["counts"].tolist() == [0, 0]
    state = server.update(state, [sent(0, 1, 4, [0, 6], [0, 0]), sent(1, 3, 8, [2, 9], [1, 1])])
    assert state.model.parameters.tolist() == [2]  # (4)
    assert state.heads[:, 0].tolist() == [0.75 * 4 + 0.25 * 8, 0.25 * 4 + 0.75 * 8, 0]  # (6); client 2 keeps its head
    assert state.prototypes[:, 0].tolist() == [0.5, 6]  # (5): (3 * 0 + 1 * 2) / 4; client 1 lacks class 1
    down = server.instruct(state, 1, train=True)
    assert down.weights["head"].parameters.tolist() == [7.0] * 4
    assert (down.arrays["counts"].tolist(), down.shared) == ([4, 1], False)
    assert dict(server.instruct(state, 1, train=False).arrays) == {}
    state = server.update(state, [sent(2, 0, 1, [0, 3], [0, 0])])  # nobody with class 0 is there: its mean stays
    assert state.prototypes[:, 0].tolist() == [0.5, 3]
    assert state.heads[:, 0].tolist() == [5, 7, 1]
    assert server.global_model(state) is None


def test_without_mixing_every_client_keeps_its_head() -> None:
    server = server_of([(3, 1), (1, 1)], mix=False)
    state = server.init(server.fleet.initial, server.fleet)
    state = server.update(state, [sent(0, 1, 4, [0, 6], [0, 0]), sent(1, 3, 8, [2, 9], [0, 0])])
    assert state.heads[:, 0].tolist() == [4, 8]


# The client


def test_the_head_is_trained_first_then_the_base(small: Small) -> None:
    config = small("algorithm=fedpac", "model=cnn-bn", "local-steps=2", "lr=0.02")
    task = TorchTask(config, client_data(config, 0), 10)
    head, start, rng = task.layout.part("head"), task.initial(), np.random.default_rng(0)
    arrays = {"prototypes": np.zeros((10, 512), np.float32), "counts": np.zeros(10, np.int64)}
    down = Downlink({"shared": start.only(~head), "head": start.only(head)}, arrays, shared=False)
    uplink = FedPacClient(params_of("fedpac", head_lr=0.02)).train(task, down, ClientState(), np.random.default_rng(0))
    tuned = task.fit(start, rng, train=head, epochs=1).weights
    after = task.fit(tuned, rng, train=~head).weights  # without prototypes there is no alignment yet
    assert np.array_equal(uplink.weights["head"].parameters, tuned.only(head).parameters)
    delta = after.only(~head).delta(start.only(~head))
    for ours, expected in ((uplink.weights["delta"], delta), (uplink.local, after)):
        assert np.array_equal(ours.parameters, expected.parameters)
        assert np.array_equal(ours.buffers, expected.buffers)
    h, v = data_moments(task.by_class(start))
    assert np.array_equal(uplink.arrays["h"], h)
    assert np.array_equal(uplink.arrays["v"], v)
    assert np.array_equal(uplink.arrays["prototypes"], task.by_class(after).means)
    faster = FedPacClient(params_of("fedpac")).train(task, down, ClientState(), np.random.default_rng(0))
    tenth = np.abs(faster.weights["head"].parameters - start.only(head).parameters).mean()
    assert tenth > 2 * np.abs(tuned.only(head).parameters - start.only(head).parameters).mean()


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_alignment_and_mixing_it_is_fedrep_bitwise(
    model: str, small: Small, finished: Callable[..., dict[str, Any]]
) -> None:
    keys = (f"model={model}", "rounds=3", "lr=0.05", "momentum=0.5", "batch-size=200")
    off = [f"fedpac.{key}" for key in ("lam=0", "mix=false", "head-lr=0.05")]
    ours = finished(small("algorithm=fedpac", *off, *keys), name="fedpac")
    fedrep = finished(small("algorithm=fedrep", "fedrep.head-epochs=1", "fedrep.base-epochs=1", *keys), name="fedrep")
    assert ours["metrics"] == fedrep["metrics"]


def test_the_alignment_draws_features_to_the_global_means(small: Small) -> None:
    config = small("algorithm=fedpac", "model=mlp", "lr=0.05")
    task = TorchTask(config, client_data(config, 0), 10)
    head, start = task.layout.part("head"), task.initial()
    goal = np.full((10, 200), 0.5, np.float32)
    arrays = {"prototypes": goal, "counts": np.ones(10, np.int64)}
    down = Downlink({"shared": start.only(~head), "head": start.only(head)}, arrays, shared=False)

    def gap(lam: float) -> float:
        uplink = FedPacClient(params_of("fedpac", lam=lam)).train(task, down, ClientState(), np.random.default_rng(0))
        return float(np.square(uplink.arrays["prototypes"] - goal)[task.labels > 0].mean())

    assert gap(20.0) < gap(1.0) < gap(0.0)


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fedpac.head-lr must be above 0"):
        small("algorithm=fedpac", "fedpac.head-lr=0")
    with pytest.raises(ConfigError, match=r"fedpac.mix must be of type bool"):
        small("algorithm=fedpac", "fedpac.mix=perhaps")
