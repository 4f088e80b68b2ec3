"""Many small clients at once: the same on every engine, equal to one by one up to rounding, and only where it pays."""

from collections.abc import Callable
from typing import Any

import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.transport.direct import AUTO, group_size

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


def test_where_it_pays(small: Small) -> None:
    dense = Layout((Tensor("head.weight", (10, 64), "head"), Tensor("head.bias", (10,), "head")))
    convolution = Layout((Tensor("base.weight", (20, 1, 5, 5), "base"),))
    large = Layout((Tensor("head.weight", (2000, 1000), "head"),))
    assert group_size(small(), dense) == AUTO
    assert [group_size(small(), layout) for layout in (convolution, large)] == [1, 1]
    assert group_size(small("optimizer=adam"), dense) == 1
    assert group_size(small("algorithm=spfl"), dense) == 1
    assert group_size(small("vectorize=off"), dense) == 1
    assert group_size(small("vectorize=8"), dense) == 8
    with pytest.raises(ConfigError, match="unknown vectorize '1'"):
        small("vectorize=1")
