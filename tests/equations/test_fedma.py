"""FedMA: matching undoes permutations of hidden units, of dense and of convolutional networks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.models import CNN, MLP, BatchNormCNN
from fedsim.clients.task import layout_of
from fedsim.clients.training import load, weights_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.strategies.matching import Layer, aligned, layers_of
from fedsim.weights import Weights
from tests.equations.halves import arrival, server, vec

Finished = Callable[..., dict[str, Any]]
MADE = {"mlp": lambda: MLP((1, 8, 8), 10, hidden=12), "cnn": lambda: CNN((1, 8, 8), 10)}


def network(name: str, seed: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MADE[name]()


def shuffled(layers: list[Layer], model: Any, seed: int) -> Any:
    """The same function with the hidden units of every layer in another order."""
    rng, inputs, out = np.random.default_rng(seed), None, np.empty_like(model)
    for layer in layers:
        rows = layer.rows(model, inputs)
        inputs = rng.permutation(layer.shape[0])
        layer.put(out, rows if layer is layers[-1] else rows[inputs])
    return out


def output(net: torch.nn.Module, parameters: Any, x: torch.Tensor) -> Any:
    load(net, Weights(parameters))
    with torch.no_grad():
        return net(x).numpy()


@pytest.mark.parametrize("name", MADE)
def test_a_permuted_network_is_the_same_function_and_is_put_back(name: str) -> None:
    net, x = network(name, 0), torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    layers, model = layers_of(layout_of(net)), weights_of(net).parameters
    other = shuffled(layers, model, 3)
    assert np.abs(other - model).max() > 0.01
    np.testing.assert_allclose(output(net, other, x), output(net, model, x), atol=1e-5)
    [back] = aligned(layers, model, [other], [1.0], sweeps=2)
    assert (back == model).all()


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("aggregator", ["mean", "median"])
def test_shuffling_a_clients_units_does_not_change_the_aggregate(name: str, aggregator: str) -> None:
    net = network(name, 0)
    layout, start = layout_of(net), weights_of(net)
    strategy = server("fedma", [3, 5, 2], layout)
    strategy.config = strategy.config.replace(aggregator=aggregator)
    rng = np.random.default_rng(0)
    moved = [0.1 * rng.normal(size=layout.size).astype(np.float32) for _ in range(3)]
    plain = [arrival(i, s, delta=d) for i, (s, d) in enumerate(zip([3, 5, 2], moved, strict=True))]
    other = shuffled(strategy.layers, start.parameters + moved[1], 7) - start.parameters
    mixed = [plain[0], arrival(1, 5, delta=other), plain[2]]
    one, two = (strategy.update(strategy.init(start, strategy.fleet), a).model.parameters for a in (plain, mixed))
    np.testing.assert_allclose(two, one, atol=1e-6)


@pytest.mark.parametrize("start", ["common", "own"])
def test_the_mean_of_permuted_copies_is_the_network(start: str) -> None:
    net = network("mlp", 0)
    layout, model = layout_of(net), weights_of(net).parameters
    strategy = server("fedma", [1, 4, 1], layout, start=start)
    first = strategy.init(weights_of(network("mlp", 1)), strategy.fleet)
    copies = [model, shuffled(strategy.layers, model, 1), shuffled(strategy.layers, model, 2)]
    if start == "common":
        first.model.parameters[:] = model
    arrivals = [
        arrival(i, s, delta=c - first.model.parameters) for i, (s, c) in enumerate(zip([1, 4, 1], copies, strict=True))
    ]
    found = strategy.update(first, arrivals).model.parameters
    reference = model if start == "common" else copies[1]  # the client with most samples
    np.testing.assert_allclose(found, reference, atol=1e-6)


def test_matching_by_hand() -> None:
    layout = Layout(
        (
            Tensor("base.weight", (2, 1), "base"),
            Tensor("base.bias", (2,), "base"),
            Tensor("head.weight", (1, 2), "head"),
        )
    )
    strategy = server("fedma", [1, 3], layout)
    state = strategy.init(Weights(vec(1, -1, 0, 0, 5, 6)), strategy.fleet)
    swapped = vec(-2, 2, 1, 0, 7, 8) - state.model.parameters  # units -2 (bias 1, to 7) and 2 (bias 0, to 8)
    state = strategy.update(state, [arrival(0, 1, delta=vec(0, 0, 0, 0, 0, 0)), arrival(1, 3, delta=swapped)])
    assert state.model.parameters == pytest.approx([1.75, -1.75, 0, 0.75, 7.25, 6.75])


@pytest.mark.parametrize("keys", [["fedma.matching=none"], []])
def test_from_a_common_start_it_is_fedavg(keys: list[str], small: Callable[..., RunConfig], finished: Finished) -> None:
    ours = finished(small("algorithm=fedma", "model=mlp", "local-steps=2", *keys), name="ours")
    plain = finished(small("algorithm=fedavg", "model=mlp", "local-steps=2"), name="plain")
    for kind in ("global", "local"):
        assert ours["metrics"]["loss"][kind]["per_client"] == pytest.approx(
            plain["metrics"]["loss"][kind]["per_client"], abs=1e-5
        )


def test_from_different_models_matching_beats_the_plain_mean(
    small: Callable[..., RunConfig], finished: Finished
) -> None:
    keys = [
        "algorithm=fedma",
        "model=mlp",
        "partition=iid",
        "fedma.start=own",
        "rounds=1",
        "local-epochs=10",
        "clients=3",
    ]
    found = {m: finished(small(*keys, f"fedma.matching={m}"), name=m)["accuracy"] for m in ("fixed", "none")}
    assert found["fixed"]["local"] == found["none"]["local"]
    assert found["fixed"]["global"]["final"] > found["none"]["global"]["final"] + 0.08


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (layout_of(BatchNormCNN((1, 8, 8), 10)), "layer 'base.1': it is neither linear nor a convolution"),
        (
            Layout((Tensor("a.weight", (4, 2), "a"), Tensor("b.weight", (3, 6), "b"))),
            "layer 'b': it takes 6 inputs, but layer 'a' before it has 4 units",
        ),
        (Layout((Tensor("a.weight", (4,), "a"),)), "layer 'a'"),
    ],
)
def test_models_that_cannot_be_permuted_are_refused_by_layer(layout: Layout, message: str) -> None:
    strategy = server("fedma", [1, 1], layout)
    with pytest.raises(ConfigError, match=message):
        strategy.init(strategy.fleet.initial, strategy.fleet)
