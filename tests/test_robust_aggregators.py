"""Aggregators that withstand malicious clients: by hand, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.aggregators.base import Aggregator, PublicAggregator
from fedsim.aggregators.krum import scores
from fedsim.clients.public_task import PublicTask
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig, read
from fedsim.errors import ConfigError, FedsimError
from fedsim.partitions.client_data import client_data
from fedsim.server.app import build
from fedsim.weights import BLOCK, Weights
from tests.equations.halves import vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]
ROBUST = ["trimmed-mean", "krum", "multi-krum", "bulyan", "rfa", "centered-clip", "norm-clip"]


def made(name: str, **params: Any) -> Aggregator:
    keys = [f"aggregator.{key}={value}" for key, value in params.items()]
    config = read(None, [f"aggregator={name}", *keys])
    found: Aggregator = config.part("aggregator")(config.params("aggregator"))
    return found


def drawn(count: int, size: int, seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32))


def points(*values: float) -> list[Any]:
    return [vec(value) for value in values]


def test_trimmed_mean_by_hand() -> None:
    trimmed, vectors = made("trimmed-mean", trim=0.25), drawn(9, BLOCK + 5)
    assert trimmed(points(1, 2, 4, 1e9), [1, 1, 1, 100]).tolist() == [3.0]
    np.testing.assert_allclose(made("trimmed-mean", trim=0)(vectors, [1] * 9), np.mean(vectors, axis=0), atol=1e-6)


def test_scores_by_hand() -> None:
    squares = np.square(np.subtract.outer([0.0, 1, 3, 7, 100], [0.0, 1, 3, 7, 100]))
    assert scores(squares, 1).tolist() == [1 + 9, 1 + 4, 4 + 9, 16 + 36, 93**2 + 97**2]  # n - f - 2 = 2 nearest


def test_multi_krum_averages_all_but_the_far_ones_by_their_sizes() -> None:
    found = made("multi-krum", malicious=1)(points(1, 2, 3, 4, 1e6), [1, 1, 1, 5, 1000])
    assert found.tolist() == [(1 + 2 + 3 + 20) / 8]


def test_bulyan_by_hand() -> None:
    found = made("bulyan", malicious=1)(points(1, 2, 3, 4, 5, 6, 1e6), [1] * 7)
    assert found.tolist() == [3.0]  # of 1 to 5 the three closest to the median 3


def test_the_geometric_median_stays_with_the_majority() -> None:
    steps = [float(made("rfa", iterations=i)(points(0, 0, 0, 100), [1] * 4)[0]) for i in (1, 2, 3, 4, 50)]
    assert steps[:2] == pytest.approx([10.0, 1000 / 280])  # the mean is 25: weights 3 / 25 and 1 / 75, and so on
    assert steps[3] < 0.5
    assert steps[4] < 1e-4


def test_the_geometric_median_minimizes_the_sum_of_distances() -> None:
    vectors, weights = drawn(7, 3), [1.0, 2, 3, 1, 2, 3, 1]

    def cost(v: Any) -> float:
        return sum(w * float(np.linalg.norm(np.float64(v) - x)) for w, x in zip(weights, vectors, strict=True))

    found = made("rfa", iterations=200)(vectors, weights)
    rng = np.random.default_rng(1)
    assert all(cost(found) <= cost(found + 0.02 * rng.normal(size=3)) for _ in range(50))


def test_clipping_by_hand() -> None:
    vectors = [vec(3, 4), vec(0, 1)]
    assert made("norm-clip", radius=1)(vectors, [3, 1]) == pytest.approx([0.45, 0.85])
    assert made("norm-clip")(points(1, 2, -30), [1] * 3) == pytest.approx([1 / 3])  # shortened to 2, the median length
    once = made("centered-clip", radius=1, iterations=1)
    assert once(vectors, [3, 1]) == pytest.approx([0.45, 0.85])  # from 0 it is norm clipping
    twice = made("centered-clip", radius=1, iterations=2)(points(1, 2, 30), [1] * 3)
    assert twice == pytest.approx([1 + (0 + 1 + 1) / 3])


def test_zeno_by_hand() -> None:
    def found(vectors: list[Any], weights: list[float], scales: list[float] | None = None, **params: Any) -> Any:
        zeno = made("zeno", **params)
        assert isinstance(zeno, PublicAggregator)
        return zeno.compared(vectors, weights, scales, vec(2, 0))

    # lengths become 2: (1.2, 1.6), (2, 0), and three that do not agree: cosines of -1, 0 and 0.001
    vectors = [vec(3, 4), vec(50, 0), vec(-7, 0), vec(0, 1), vec(0.001, 1)]
    assert found(vectors, [1, 3, 9, 9, 9]) == pytest.approx([0.25 * 1.2 + 0.75 * 2, 0.25 * 1.6])
    assert found(vectors[2:], [1, 1, 1]).tolist() == [0, 0]
    # 0.1 * (2 * 2 * cos + eps) >= rho * 4
    assert found([vec(3, 4)], [1], rho=0.059) == pytest.approx([1.2, 1.6])
    assert found([vec(3, 4)], [1], rho=0.061).tolist() == [0, 0]
    assert found([vec(3, 4)], [1], rho=0.061, eps=0.1) == pytest.approx([1.2, 1.6])
    assert found([vec(3, 4)], [1], [0.5]) == pytest.approx([0.6, 0.8])
    assert found([vec(0, 0)], [1]).tolist() == [0, 0]
    with pytest.raises(FedsimError, match="Zeno combines updates of the global model only"):
        made("zeno")(vectors, [1] * 5)


def test_zeno_trains_on_public_data_every_so_many_steps(
    small: Small, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, train = list[int](), PublicTask.update
    monkeypatch.setattr(
        PublicTask, "update", lambda self, start, step: (steps.append(step), train(self, start, step))[1]
    )
    finished(small("aggregator=zeno", "public=60", "rounds=5", "aggregator.every=2"))
    assert steps == [0, 2, 4]


def test_the_servers_own_update_is_that_of_a_client_with_the_public_data(small: Small) -> None:
    config = small("public=60", "model=cnn-bn", "local-epochs=2", "lr-schedule=0.5:1")
    public, start = PublicTask(config, 10), TorchTask(config, client_data(config, 0), 10).initial()
    first, again, later = (public.update(start, step) for step in (0, 0, 1))
    assert np.array_equal(first.parameters, again.parameters)
    assert np.linalg.norm(later.parameters) < np.linalg.norm(first.parameters)  # by the schedule
    assert np.abs(first.buffers).max() > 0
    trained = Weights(start.parameters + first.parameters, start.buffers + first.buffers)
    assert public.test(trained)["loss"] < public.test(start)["loss"]


@pytest.mark.parametrize("name", ["norm-clip", "centered-clip"])
def test_clipping_with_a_huge_radius_is_the_mean(name: str) -> None:
    vectors, weights, scales = drawn(5, 30), [1.0, 2, 3, 4, 5], [1.0, 0.5, 2, -1, 1]
    mean = made("mean")(vectors, weights, scales)
    np.testing.assert_allclose(made(name, radius=1e9)(vectors, weights, scales), mean, atol=1e-6)


@pytest.mark.parametrize("name", ROBUST)
def test_scales_and_a_few_malicious_vectors(name: str) -> None:
    honest, weights = drawn(8, BLOCK + 3), [2.0] * 10
    vectors = [*honest, *(1e6 * v for v in drawn(2, BLOCK + 3, seed=1))]
    params = {
        "bulyan": {"malicious": 1},
        "krum": {"malicious": 2},
        "multi-krum": {"malicious": 2},
        "rfa": {"iterations": 50},
    }
    robust, count = made(name, **params.get(name, {})), 9 if name == "bulyan" else 10
    found = robust(vectors[:count], weights[:count])
    assert found.dtype == np.float32
    assert np.linalg.norm(found - np.mean(honest, axis=0)) < np.linalg.norm(honest[0]) * 1.2
    doubled = robust(vectors[:9], weights[:9], [2.0] * 9)
    np.testing.assert_allclose(doubled, robust([2 * v for v in vectors[:9]], weights[:9]), rtol=1e-4)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["aggregator=krum"], r"aggregator\.malicious=1 needs more than 2f \+ 2 = 4 clients, but clients=4 with parti"),
        (["aggregator=multi-krum", "clients=10", "participation=0.4"], r"2f \+ 2 = 4 clients.* are 4 per round"),
        (
            ["aggregator=trimmed-mean"],
            r"aggregator\.trim=0\.2 leaves out nobody of fewer than 5 clients, but clients=4",
        ),
        (["aggregator=bulyan", "clients=6"], r"aggregator\.malicious=1 needs more than 4f \+ 2 = 6 clients"),
        (["aggregator=multi-krum", "algorithm=fedamp", "clients=9"], r"fedamp does not average"),
        (["aggregator=zeno"], r"aggregator=zeno needs public data: set public=N"),
        (
            ["aggregator=zeno", "public=60", "algorithm=fedper", "model=mlp"],
            r"fedper does not average updates of the run's whole model alone\. Algorithms that do: .*fedavg, .*sageflow$",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_numbers(keys: list[str], message: str, small: Small) -> None:
    with pytest.raises(ConfigError, match=message):
        build(small(*keys))


def test_a_step_with_too_few_results_is_refused() -> None:
    with pytest.raises(FedsimError, match=r"2f \+ 2 = 4 clients, but this step has only 4 results"):
        made("krum")(points(1, 2, 3, 4), [1] * 4)


@pytest.mark.parametrize("name", [*ROBUST, "zeno"])
def test_runs_with_batch_normalization(name: str, small: Small, finished: Finished) -> None:
    keys = [
        f"aggregator={name}",
        "public=60",
        "clients=7",
        "partition=iid",
        "model=cnn-bn",
        "local-steps=1",
        "rounds=1",
    ]
    summary = finished(small(*keys))
    assert summary["failures"] == []
    assert summary["accuracy"]["global"]["final"] > 0
