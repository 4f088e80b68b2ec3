"""Many small clients at once: the same on every engine, equal to one by one up to rounding, and only where it pays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.client.groups import AT_ONCE, at_once, averaged, group_size
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Answer, Arrival, Downlink, Failure, Job, Report, Uplink, with_updates
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
MANY = ("clients=70", "partition=iid", "rounds=2", "batch-size=8", "model=mlp", "momentum=0.5")


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "fedavg-ft"])
def test_groups_give_the_numbers_of_one_by_one(algorithm: str, small: Small, finished: Finished) -> None:
    keys = (f"algorithm={algorithm}", *MANY)
    off, auto = (finished(small(*keys, f"vectorize={way}"), name=way) for way in ("off", "auto"))
    assert auto["weights_sha256"] != off["weights_sha256"], "it was not vectorized"
    for kind in ("global", "local", "personal"):
        for one, other in zip(*(s["metrics"]["loss"][kind]["per_client"] for s in (off, auto)), strict=True):
            assert other == pytest.approx(one, abs=1e-5)


def test_few_clients_are_trained_one_by_one_bit_for_bit(small: Small, finished: Finished) -> None:
    keys = ("clients=6", "partition=iid", "model=mlp")
    off, auto = (finished(small(*keys, f"vectorize={way}"), name=way) for way in ("off", "auto"))
    assert auto["weights_sha256"] == off["weights_sha256"]


def test_a_client_that_fails_does_not_fail_its_group(small: Small, finished: Finished) -> None:
    """A learning rate that makes every model infinite: each client is refused by itself, and named."""
    from fedsim.errors import FedsimError

    with pytest.raises(FedsimError, match=r"client 0: .*NaN or infinite"):
        finished(small(*MANY, "lr=1e30"))


def test_updates_of_many_clients_are_averaged_where_they_are_made(
    small: Small, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of two of 30 clients: the same run up to rounding, and every client counts with the bytes it would send."""
    config = small("clients=30", "partition=iid", "batch-size=4", "vectorize=off")
    together = finished(config, name="averaged")
    monkeypatch.setattr(FedAvg, "takes_means", False)
    single = finished(config, name="single")
    assert together["weights_sha256"] != single["weights_sha256"], "nothing was averaged"
    assert together["bytes_up"] == single["bytes_up"] > 0
    for one, other in zip(*(s["metrics"]["loss"]["global"]["per_client"] for s in (together, single)), strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def answer(client: int, examples: int, *delta: float, model: int = 0) -> tuple[Answer, None]:
    """`model`: the parameters of the model that was sent, as many as in the update unless given."""
    uplink = Uplink(examples, {"delta": Weights(np.array(delta, np.float32))})
    down = Downlink({"model": Weights(np.zeros(model or len(delta), np.float32))})
    return Answer(Job(client, 0, down), uplink, Report()), None


def test_the_first_of_a_group_holds_the_mean_by_samples() -> None:
    failed = Failure(Job(1, 0, Downlink()), "out of memory"), None
    results = averaged([answer(0, 1, 4, 0), failed, answer(2, 3, 8, 4)])
    arrivals = [Arrival(r.job.client, 0, r.uplink, 0.0, 1.0) for r, _ in results if isinstance(r, Answer) and r.uplink]
    (holder,), samples = with_updates(arrivals)
    assert (holder.client, samples) == (0, [4])
    assert holder.uplink.weights["delta"].parameters.tolist() == [(1 * 4 + 3 * 8) / 4, (3 * 4) / 4]
    assert [a.uplink.examples for a in arrivals] == [1, 3]
    assert [a.uplink.nbytes for a in arrivals] == [8, 8]
    assert results[1] is failed


@pytest.mark.parametrize("other", [answer(1, 1, np.nan), answer(1, 1, 1, 2), answer(1, 0, 1)])
def test_updates_without_a_mean_stay_apart_so_that_the_culprit_is_named(other: tuple[Answer, None]) -> None:
    results = [answer(0, 1, 1), other]
    assert averaged(results) == results


def test_updates_that_all_have_the_same_wrong_shape_stay_apart() -> None:
    results = [answer(client, 1, 1, 2, model=3) for client in (0, 1)]
    assert averaged(results) == results


def test_groups_are_fixed_by_the_cohort() -> None:
    assert [group_size(jobs, 1, averages=True) for jobs in (23, 24, 50, 256, 100_000)] == [1, 2, 4, 21, 64]
    assert [group_size(jobs, 32, averages=True) for jobs in (23, 63, 64, 1000, 10_000)] == [1, 5, 32, 64, 64]
    assert [group_size(jobs, size, averages=False) for jobs, size in ((1000, 1), (1000, 32))] == [1, 32]


def test_where_it_pays(small: Small) -> None:
    dense = Layout((Tensor("head.weight", (10, 64), "head"), Tensor("head.bias", (10,), "head")))
    convolution = Layout((Tensor("base.weight", (20, 1, 5, 5), "base"),))
    large = Layout((Tensor("head.weight", (2000, 1000), "head"),))
    assert at_once(small(), dense) == AT_ONCE
    assert [at_once(small(), layout) for layout in (convolution, large)] == [1, 1]
    assert at_once(small("optimizer=adam"), dense) == 1
    assert at_once(small("algorithm=spfl"), dense) == 1
    assert at_once(small("vectorize=off"), dense) == 1
    assert at_once(small("vectorize=8"), dense) == 8
    with pytest.raises(ConfigError, match="unknown vectorize '1'"):
        small("vectorize=1")
