"""Many small clients at once: the same on every engine, equal to one by one up to rounding, and only where it pays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.client.groups import AT_ONCE, JobGroup, at_once, averaged, groups_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Answer, Arrival, Downlink, Failure, Job, Report, Uplink, with_updates
from fedsim.strategies.fedavg import FedAvg
from fedsim.transport.direct import CohortMean
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


def test_the_last_of_a_group_holds_the_mean_by_samples() -> None:
    failed = Failure(Job(1, 0, Downlink()), "out of memory"), None
    results = averaged([answer(0, 1, 4, 0), failed, answer(2, 3, 8, 4)])
    arrivals = [Arrival(r.job.client, 0, r.uplink, 0.0, 1.0) for r, _ in results if isinstance(r, Answer) and r.uplink]
    (holder,), samples = with_updates(arrivals)
    assert (holder.client, samples) == (2, [4])
    assert holder.uplink.weights["delta"].parameters.tolist() == [(1 * 4 + 3 * 8) / 4, (3 * 4) / 4]
    assert [a.uplink.examples for a in arrivals] == [1, 3]
    assert [a.uplink.nbytes for a in arrivals] == [8, 8]
    assert results[1] == failed


def test_means_of_groups_have_the_mean_of_all_clients() -> None:
    first, second = averaged([answer(0, 1, 4), answer(1, 1, 6)]), averaged([answer(2, 6, 1)])
    *others, (whole, _) = averaged([*first, *second])
    assert isinstance(whole, Answer)
    assert whole.uplink is not None
    assert (whole.uplink.averaged, whole.uplink.weights["delta"].parameters.tolist()) == (8, [(4 + 6 + 6 * 1) / 8])
    assert all(isinstance(r, Answer) and r.uplink and r.uplink.averaged == 0 for r, _ in others)


@pytest.mark.parametrize("other", [answer(1, 1, np.nan), answer(1, 1, 1, 2), answer(1, 0, 1), answer(1, 1, 1, model=3)])
def test_updates_without_a_mean_are_refused(other: tuple[Answer, None]) -> None:
    with pytest.raises(ValueError, match=r"not finite|does not fit"):
        averaged([answer(0, 1, 1), other])


def test_the_cohort_is_averaged_in_the_order_of_its_clients_however_they_arrive() -> None:
    results = [answer(client, 1 + client, 0.1 * client, 1.0 / (client + 3))[0] for client in range(7)]
    means = set()
    for order in (range(7), reversed(range(7)), (3, 0, 6, 1, 5, 4, 2)):
        mean = CohortMean([result.job for result in results])
        found = [each for client in order for each in mean.without_updates([results[client]])]
        assert [r.job.client for r in found] == list(range(7))
        *others, last = [r.uplink for r in found if isinstance(r, Answer) and r.uplink]
        assert [u.averaged for u in (*others, last)] == [0] * 6 + [28]
        means.add(last.weights["delta"].parameters.tobytes())
    assert len(means) == 1


def test_the_last_answer_of_a_cohort_holds_the_mean_if_others_fail() -> None:
    """An evaluation and updates that cannot be averaged pass as they are."""
    jobs = [Job(client, 0, Downlink({"model": Weights(np.zeros(1, np.float32))})) for client in range(4)]
    test = Answer(Job(9, 0, Downlink(), train=False), None, Report())
    failed, strange = Failure(jobs[3], "lost"), answer(2, 0, 5)[0]
    mean = CohortMean(jobs)
    assert mean.without_updates([failed, test]) == [test]
    assert mean.without_updates([answer(0, 2, 1)[0], strange]) == []
    first, second, third, last = mean.without_updates([answer(1, 2, 3)[0]])
    assert [r.job.client for r in (first, second, third, last)] == [0, 2, 3, 1]
    assert (second, third) == (strange, failed)
    assert isinstance(last, Answer)
    assert last.uplink is not None
    assert (last.uplink.averaged, last.uplink.weights["delta"].parameters.tolist()) == (4, [2.0])


def test_groups_are_fixed_by_the_cohort() -> None:
    def sizes(jobs: int, at_once: int, averages: bool) -> tuple[int, int, bool]:
        all_jobs = [Job(client, 0, Downlink()) for client in range(jobs)]
        groups = groups_of(all_jobs, JobGroup((), 10, averages=averages), at_once)
        assert [job for group in groups for job in group.jobs] == all_jobs
        assert {group.averages for group in groups} == {averages}
        return len(groups[0].jobs), len(groups), groups[0].at_once

    assert [sizes(jobs, 1, True) for jobs in (24, 50, 1000)] == [(2, 12, False), (4, 13, False), (16, 63, False)]
    assert [sizes(jobs, 32, True) for jobs in (63, 64, 1000)] == [(5, 13, False), (32, 2, True), (32, 32, True)]
    assert [sizes(jobs, size, False) for jobs, size in ((100, 1), (100, 32))] == [(1, 100, False), (32, 4, True)]


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
