"""FedMA layer by layer: what a pass leaves of permuted networks, frozen layers, the last layer, late results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.clients.fedma import FedMAClient
from fedsim.clients.task import TorchTask, layout_of
from fedsim.clients.training import weights_of
from fedsim.config import NoParams, RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights
from tests.equations.halves import arrival, server, vec
from tests.equations.test_fedma import network, shuffled

LAYOUT = Layout((Tensor("base.weight", (2, 1), "base"), Tensor("head.weight", (2, 2), "head")))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_pass_over_permuted_copies_leaves_the_network(name: str) -> None:
    net, sizes = network(name, 0), [1, 4, 2]
    layout, model = layout_of(net), weights_of(net).parameters
    strategy = server("fedma-layerwise", sizes, layout)
    strategy.fleet.clients = [Client(i, i, size, 1, (size,) * 10) for i, size in enumerate(sizes)]
    strategy.attach(Fleet(strategy.fleet.clients, layout, strategy.fleet.initial))
    state = strategy.init(Weights(np.zeros_like(model)), strategy.fleet)
    copies = [shuffled(strategy.layers, model, seed) for seed in range(3)]
    for phase in range(len(strategy.layers)):
        assert state.phase == phase
        sent = copies if phase == 0 else [np.zeros_like(model)] * 3  # later rounds train nothing
        arrivals = [arrival(i, sizes[i], step=phase, delta=delta) for i, delta in enumerate(sent)]
        state = strategy.update(state, arrivals)
    assert (state.phase, state.passes) == (0, 1)
    np.testing.assert_allclose(state.model.parameters, copies[1], atol=1e-6)  # in the order of the largest client
    assert (state.models == state.models[0]).all()
    assert strategy.instruct(state, 0, train=False).shared


def two_clients() -> Any:
    strategy = server("fedma-layerwise", [1, 3], LAYOUT)
    clients = [Client(0, 0, 1, 1, (1, 0)), Client(1, 1, 3, 1, (1, 2))]
    strategy.attach(Fleet(clients, LAYOUT, Weights(np.zeros(6, np.float32))))
    return strategy, strategy.init(strategy.fleet.initial, strategy.fleet)


def test_a_pass_by_hand() -> None:
    strategy, state = two_clients()
    deltas = vec(2, -2, 1, 2, 3, 4), vec(-1, 1, 5, 6, 7, 8)  # base units, then rows of the head by class
    state = strategy.update(state, [arrival(0, 1, delta=deltas[0]), arrival(1, 3, delta=deltas[1])])
    assert state.models.tolist() == [  # units of client 0 in the order of client 1, which has more samples
        [-1.25, 1.25, 2, 1, 4, 3],
        [-1.25, 1.25, 5, 6, 7, 8],
    ]
    down = strategy.instruct(state, 0, train=True)
    assert down.numbers["frozen"] == 2
    assert not down.shared
    assert strategy.global_model(state).parameters.tolist() == [0] * 6  # the last complete pass
    late = arrival(0, 1, step=0, staleness=1, delta=deltas[0])
    assert strategy.update(state, [late]).phase == 1  # dropped: the pass waits
    state = strategy.update(state, [arrival(i, s, step=2, delta=np.zeros(6, np.float32)) for i, s in ((0, 1), (1, 3))])
    assert state.model.parameters == pytest.approx(
        [-1.25, 1.25, 3.5, 3.5, 7, 8], abs=1e-4
    )  # class 0: 1 to 1; class 1: 0 to 2


def test_frozen_layers_stay_and_later_ones_train(small: Callable[..., RunConfig]) -> None:
    config = small("model=mlp")
    task = TorchTask(config, client_data(config, 0), 10)
    frozen = task.layout.slices["base.2.weight"].start
    down = Downlink({"model": task.initial()}, numbers={"own-start": False, "frozen": frozen})
    delta = (
        FedMAClient(NoParams()).train(task, down, ClientState(), np.random.default_rng(0)).weights["delta"].parameters
    )
    assert (delta[:frozen] == 0).all()
    assert np.abs(delta[frozen:]).max() > 0
