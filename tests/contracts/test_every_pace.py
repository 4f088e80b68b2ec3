"""Paces and algorithms together, on real training."""

from collections.abc import Callable
from typing import Any

import pytest

from fedsim.config import RunConfig

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("pace", ["buffered", "window", "periodic", "deadline"])
def test_without_delays_the_result_is_bitwise_synchronous(pace: str, small: Small, finished: Finished) -> None:
    k = ["pace.k=4"] if pace == "buffered" else []
    asynchronous = finished(small(f"pace={pace}", "rounds=4", *k), name="asynchronous")
    rounds = finished(small("rounds=4"), name="rounds")
    assert asynchronous["weights_sha256"] == rounds["weights_sha256"]
    assert asynchronous["accuracy"] == rounds["accuracy"]
    assert asynchronous["virtual_seconds"] == rounds["virtual_seconds"] == 4.0


def test_an_empty_set_of_stragglers_is_fedavg_bitwise(small: Small, finished: Finished) -> None:
    keys = ["stragglers=periodic", "stragglers.count=0", "pace=window"]
    assert finished(small(*keys), name="none")["weights_sha256"] == finished(small(), name="plain")["weights_sha256"]


def test_stragglers_change_the_result(small: Small, finished: Finished) -> None:
    keys = ["stragglers=periodic", "stragglers.count=2", "pace=window", "rounds=4"]
    assert (
        finished(small(*keys), name="some")["weights_sha256"]
        != finished(small("rounds=4"), name="none")["weights_sha256"]
    )


def test_hundreds_of_virtual_hours_take_the_time_of_their_training(small: Small, finished: Finished) -> None:
    keys = ["stragglers=speed", "stragglers.samples=0.0005", "rounds=3", "pace=buffered"]
    summary = finished(small(*keys))
    assert summary["virtual_seconds"] > 200 * 3600
    assert summary["seconds"] < 60


def test_everyone_is_evaluated_although_some_are_busy(small: Small, finished: Finished) -> None:
    keys = ["stragglers=periodic", "stragglers.count=3", "pace=window", "rounds=3"]
    summary = finished(small(*keys))
    for kind in ("global", "personal"):
        assert None not in summary["accuracy"][kind]["per_client"]
