"""FedAsync, FedBuff, TWAFL and stale FedAvg against numbers worked by hand."""

from math import e
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.algorithm import GlobalState
from fedsim.config import RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Uplink
from fedsim.vector import Layout, Tensor
from strategies.staleness import DISCOUNTS


def vec(*values: float) -> Any:
    return np.array(values, np.float32)


def server(name: str, count: int = 3, **params: object) -> Any:
    """The server half of an algorithm, with clients of 10, 20, ... samples and a model of 2 shallow and 1 deep values."""
    algorithm = registry.find("algorithm", name)
    layout = Layout((Tensor("base.w", (2,), "base"), Tensor("head.w", (1,), "head")))
    fleet = Fleet([Client(i, i, 10 * (i + 1), 1, (1,)) for i in range(count)], layout, vec(0, 0, 0), vec())
    strategy = algorithm.server(algorithm.params(**params), RunConfig(clients=count))
    strategy.enlist(fleet)
    return strategy


def arrival(client: int, step: int, staleness: int, **vectors: Any) -> Arrival:
    return Arrival(client, step, Uplink(vectors, 10 * (client + 1)), 0.0, 1.0, staleness)


def test_discounts_by_hand() -> None:
    assert DISCOUNTS["polynomial"](3, 0.5, 0) == 0.5
    assert DISCOUNTS["constant"](99, 0.5, 0) == 1
    assert [DISCOUNTS["hinge"](u, 10, 4) for u in (0, 4, 5, 6)] == [1, 1, 1 / 11, 1 / 21]


def test_a_stale_model_is_averaged_as_if_it_were_fresh() -> None:
    strategy = server("fedavg", 2)
    strategy.fleet.busy[0] = 0  # client 0 works on the first model
    state = strategy.update(strategy.init(vec(1, 1, 1), strategy.fleet), [arrival(1, 0, 0, delta=vec(2, 2, 2))])
    assert state.theta.tolist() == [3, 3, 3]
    assert list(state.history) == [0]
    del strategy.fleet.busy[0]
    both = [arrival(0, 0, 1, delta=vec(5, 5, 5)), arrival(1, 1, 0, delta=vec(0, 0, 0))]
    state = strategy.update(state, both)
    # models 1 + 5 = 6 of 10 samples, and 3 of 20 samples
    assert state.theta == pytest.approx([4, 4, 4])
    assert state.history == {}


def test_fedasync_replaces_when_alpha_is_one() -> None:
    strategy = server("fedasync", alpha=1.0, discount="constant")
    state = strategy.update(strategy.init(vec(1, 1, 1), strategy.fleet), [arrival(0, 0, 0, delta=vec(6, 7, 8))])
    assert state.theta.tolist() == [7, 8, 9]


def test_fedasync_sequential_by_hand() -> None:
    strategy = server("fedasync", alpha=0.5, a=0.5)
    state = GlobalState(vec(4, 4, 4), vec(), 3, {0: vec(0, 0, 0)})
    two = [arrival(0, 3, 0, delta=vec(4, 4, 4)), arrival(1, 0, 3, delta=vec(2, 2, 2))]
    # 0.5*4 + 0.5*8 = 6; then alpha 0.5 * (3+1)^-0.5 = 0.25: 0.75*6 + 0.25*2 = 5
    assert strategy.update(state, two).theta.tolist() == [5, 5, 5]


def test_fedasync_round_by_hand() -> None:
    strategy = server("fedasync", alpha=0.8, a=0.5, mode="round")
    state = GlobalState(vec(4, 4, 4), vec(), 3, {0: vec(0, 0, 0)})
    two = [arrival(0, 3, 0, delta=vec(4, 4, 4)), arrival(1, 0, 3, delta=vec(1, 1, 1))]
    # fresh: 8, as it is. Stale: 0.8 * 0.5 = 0.4: 0.4*1 + 0.6*4 = 2.8. Mean by 10 and 20 samples.
    assert strategy.update(state, two).theta == pytest.approx([(8 + 2 * 2.8) / 3] * 3)


def test_fedbuff_by_hand() -> None:
    strategy = server("fedbuff", eta=2.0)
    state = GlobalState(vec(1, 1, 1), vec(), 3, {0: vec(0, 0, 0)})
    two = [arrival(0, 3, 0, delta=vec(1, 1, 1)), arrival(1, 0, 3, delta=vec(4, 4, 4))]
    # 1 + 2 * 1/2 * (1*1 + 0.5*4)
    assert strategy.update(state, two).theta.tolist() == [4, 4, 4]


def test_twafl_weighs_by_age_and_sums_to_one() -> None:
    strategy = server("twafl", 2, base=2.0, loop=2, deep_rounds=1)
    state = strategy.init(vec(0, 0, 0), strategy.fleet)
    state = strategy.update(state, [arrival(0, 0, 0, shallow=vec(3, 3)), arrival(1, 0, 0, shallow=vec(6, 6))])
    assert state.theta.tolist() == [5, 5, 0]  # by 10 and 20 samples; nothing deep was heard
    state = strategy.update(state, [arrival(0, 1, 0, shallow=vec(8, 8), deep=vec(7))])
    # client 0: weight 10, fresh. Client 1: weight 20 / 2, one step old. Deep: only client 0.
    assert state.theta.tolist() == [7, 7, 7]


def test_twafl_exchanges_the_deep_part_seldom() -> None:
    strategy = server("twafl", 2, loop=3, deep_rounds=1)
    state = strategy.init(vec(1, 2, 3), strategy.fleet)
    sent = []
    for step in range(6):
        state.step = step
        sent.append(sorted(strategy.instruct(state, 0).vectors))
    assert sent == [["shallow"], ["shallow"], ["model"]] * 2
    assert strategy.params.base == e / 2


def test_twafl_refuses_what_does_not_fit() -> None:
    strategy = server("twafl", deep_stages=("tail",))
    with pytest.raises(ConfigError, match=r"no stage 'tail'.*Choices: base, head"):
        strategy.init(vec(0, 0, 0), strategy.fleet)
    strategy = server("twafl")
    with pytest.raises(FedsimError, match="client 0 sent a deep part of 2 values"):
        strategy.update(
            strategy.init(vec(0, 0, 0), strategy.fleet), [arrival(0, 0, 0, shallow=vec(1, 1), deep=vec(1, 1))]
        )
