"""How vectors of several clients become one, and which algorithms let a run choose it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.aggregators import Mean, Median
from fedsim.config import NoParams, RunConfig
from fedsim.errors import ConfigError
from fedsim.server.app import build
from fedsim.weights import BLOCK
from tests.equations.halves import arrival, server, started, vec

Small, Finished = Callable[..., RunConfig], Callable[..., dict[str, Any]]
AVERAGING = ["apfl", "fedavg", "fedavg-ft", "fedbuff", "fedprox", "fedprox-ft", "fedupdate", "lga", "per-fedavg"]
NOT_AVERAGING = ["fedamp", "fedasync", "heurfedamp", "local", "spfl", "spfl-w", "twafl"]


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("size", [5, BLOCK + 3])
def test_against_numpy(count: int, size: int) -> None:
    rng = np.random.default_rng(0)
    vectors = list(rng.normal(size=(count, size)).astype(np.float32))
    weights, scales = rng.uniform(1, 5, count).tolist(), rng.uniform(0, 2, count).tolist()
    scaled = np.array(scales)[:, None] * np.array(vectors, np.float64)
    for given, values in ((None, np.array(vectors, np.float64)), (scales, scaled)):
        mean, median = Mean(NoParams())(vectors, weights, given), Median(NoParams())(vectors, weights, given)
        assert mean.dtype == median.dtype == np.float32
        np.testing.assert_allclose(mean, np.average(values, axis=0, weights=weights), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(median, np.median(values, axis=0), rtol=1e-5, atol=1e-6)


def test_the_median_ignores_one_wild_client_and_the_numbers_of_samples() -> None:
    deltas, sizes = [vec(1, 1, 1, 1, 1), vec(2, 2, 2, 2, 2), vec(1e9, -1e9, 1e9, 0, 0)], [1, 1, 1000]
    for name in ("fedavg", "lga"):
        strategy = server(name, sizes)
        strategy.config = strategy.config.replace(aggregator="median")
        arrivals = [arrival(i, sizes[i], delta=delta) for i, delta in enumerate(deltas)]
        after = strategy.update(started(strategy, 0, 0, 0, 0, 0), arrivals)
        assert after.model.parameters.tolist() == [2, 1, 2, 1, 1]


@pytest.mark.parametrize("name", NOT_AVERAGING)
def test_algorithms_that_do_not_average_are_refused(name: str, small: Small) -> None:
    with pytest.raises(
        ConfigError, match=rf"aggregator=median: {name} does not average .*Algorithms that do: "
    ) as told:
        build(small(f"algorithm={name}", "aggregator=median"))
    named = str(told.value).split("Algorithms that do: ")[1].split(", ")
    assert set(AVERAGING) | {"pfedme", "plga", "scaffold"} <= set(named)
    assert not set(NOT_AVERAGING) & set(named)
    build(small(f"algorithm={name}"))


@pytest.mark.parametrize("name", [*AVERAGING, "pfedme", "plga", "scaffold"])
def test_algorithms_that_average_use_the_runs_aggregator(name: str, small: Small, finished: Finished) -> None:
    mean, median = (finished(small(f"algorithm={name}", f"aggregator={a}"), name=a) for a in ("mean", "median"))
    assert mean["weights_sha256"] != median["weights_sha256"]
    assert mean["failures"] == median["failures"] == []


def test_an_unknown_aggregator_is_refused(small: Small) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown aggregator 'mode'.*Choices: bulyan, centered-clip, krum, mean, median, "
    ):
        small("aggregator=mode")
