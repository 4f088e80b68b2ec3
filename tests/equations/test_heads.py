"""FedRep, FedBABU, FedRoD and LG-FedAvg: what is trained, what is exchanged, and their limits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedsim import registry
from fedsim.clients.fedrod import log_prior
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError, FedsimError
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.rng import stream
from fedsim.weights import Weights
from tests.equations.halves import arrival, halves, server

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]
BOTH = pytest.mark.parametrize("model", ["mlp", "cnn-bn"])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def equal(one: Weights, other: Weights) -> bool:
    return np.array_equal(one.parameters, other.parameters) and np.array_equal(one.buffers, other.buffers)


# FedRep


@pytest.mark.parametrize("name", ["fedrep", "fedbabu"])
def test_the_base_is_the_mean_by_samples(name: str) -> None:
    strategy = server(name, [1, 3])
    state = strategy.init(strategy.fleet.initial, strategy.fleet)
    sent = [arrival(i, n, delta=np.float32([d] * 3)) for i, (n, d) in enumerate([(1, 4.0), (3, 8.0)])]
    assert strategy.update(state, sent).model.parameters.tolist() == [(1 * 4 + 3 * 8) / 4] * 3


@BOTH
def test_fedrep_trains_the_head_and_then_the_base(model: str, small: Small) -> None:
    """Momentum and weight decay would move a part that is only left without a gradient."""
    keys = ("fedrep.head-epochs=2", "fedrep.base-epochs=1", "momentum=0.5", "weight-decay=0.1")
    strategy, half, (task, *_) = halves(small("algorithm=fedrep", f"model={model}", *keys))
    state, start, draws = strategy.init(task.initial(), strategy.fleet), task.initial(), rng()
    head, kept = task.layout.part("head"), ClientState()
    uplink = half.train(task, strategy.instruct(state, 0, train=True), kept, rng())
    first = task.fit(start, draws, train=head, epochs=2).weights
    second = task.fit(first, draws, train=~head, epochs=1).weights
    assert equal(first.only(~head), start.only(~head))  # (2) leaves phi as it was, bit for bit
    assert equal(second.only(head), first.only(head))
    assert not np.array_equal(first.parameters, start.parameters)
    assert equal(kept.weights["private"], first.only(head))
    assert equal(uplink.weights["delta"], second.only(~head).delta(start.only(~head)))
    assert uplink.local is not None
    assert equal(uplink.local, second)


def test_fedrep_without_head_epochs_is_fedbabu_without_tuning(small: Small, finished: Finished) -> None:
    keys = ("model=mlp", "rounds=3")
    ours = finished(small("algorithm=fedrep", "fedrep.head-epochs=0", *keys), name="fedrep")
    babu = finished(small("algorithm=fedbabu", "finetune=0", *keys), name="fedbabu")
    assert ours["metrics"]["loss"]["personal"] == babu["metrics"]["loss"]["personal"]


def test_fedrep_without_base_epochs_trains_heads_alone(small: Small, finished: Finished) -> None:
    config = small("algorithm=fedrep", "fedrep.base-epochs=0", "fedrep.head-epochs=2", "model=mlp", "rounds=3")
    summary = finished(config)
    for client, task in enumerate(halves(config)[2]):
        alone, head = task.initial(), task.layout.part("head")
        for step in range(3):
            alone = task.fit(alone, stream(config.seed, client, step, 0, "train"), train=head, epochs=2).weights
        found = task.evaluate(alone)
        assert found is not None
        assert summary["metrics"]["loss"]["personal"]["per_client"][client] == found["loss"]


def test_fedrep_tunes_heads_after_the_last_round_if_asked(small: Small, finished: Finished) -> None:
    config = small("algorithm=fedrep", "model=mlp", "fedrep.head-epochs=1", "fedrep.final-epochs=3")
    ours, plain = finished(config), finished(config.replace(sections={"fedrep": {"head-epochs": 1}}), name="plain")
    assert ours["weights_sha256"] == plain["weights_sha256"]
    assert ours["accuracy"]["personal"]["final"] != plain["accuracy"]["personal"]["final"]
    strategy, half, (task, *_) = halves(config)
    state, head = strategy.init(task.initial(), strategy.fleet), task.layout.part("head")
    state.step = config.rounds - 1
    assert not strategy.instruct(state, 0, train=True).numbers["final"]
    state.step = config.rounds
    used = half.personalize(task, strategy.instruct(state, 0, train=False), ClientState(), rng())
    assert equal(used, task.fit(task.initial(), rng(), train=head, epochs=3).weights)


# FedBABU


@BOTH
def test_fedbabu_never_trains_or_sends_the_head(model: str, small: Small, tmp_path: Path) -> None:
    config = small(
        "algorithm=fedbabu", f"model={model}", "local-steps=2", "weight-decay=0.1", f"out={tmp_path / 'run'}"
    )
    launch(config, "inline")
    strategy, half, (task, *_) = halves(config)
    stored, initial = np.load(tmp_path / "run" / "model.npz"), task.layout.named(task.initial())
    assert all(np.array_equal(stored[name], initial[name]) == name.startswith("head.") for name in task.layout.slices)
    state, kept, base = strategy.init(task.initial(), strategy.fleet), ClientState(), task.layout.part("base")
    down = strategy.instruct(state, 0, train=True)
    uplink = half.train(task, down, kept, rng())
    assert kept == ClientState()
    trained = task.fit(task.initial(), rng(), train=base).weights
    assert equal(uplink.weights["delta"], trained.only(base).delta(task.initial().only(base)))
    assert down.shared
    assert equal(half.global_model(task, down), task.initial())


def test_fedbabu_tunes_five_epochs_of_the_whole_model_unless_told(small: Small, finished: Finished) -> None:
    keys = ("algorithm=fedbabu", "model=mlp", "rounds=1")
    ways = {
        "default": [],
        "same": ["finetune=5", "finetune.part=all"],
        "none": ["finetune=0"],
        "head": ["finetune.part=head"],
    }
    found = {way: finished(small(*keys, *more), name=way) for way, more in ways.items()}
    loss = {way: summary["metrics"]["loss"] for way, summary in found.items()}
    assert loss["default"] == loss["same"]
    assert loss["none"]["personal"]["per_client"] == loss["none"]["global"]["per_client"]
    assert loss["none"]["global"] == loss["default"]["global"]
    assert len({values["personal"]["final"] for values in loss.values()}) == 3


def test_fedbabu_needs_a_base_to_train(small: Small, finished: Finished) -> None:
    with pytest.raises(FedsimError, match="fedbabu trains the base alone, and model=mlr is a head without a base"):
        finished(small("algorithm=fedbabu", "model=mlr"))


def test_fedbabu_with_an_empty_head_is_fedavg(
    small: Small, monkeypatch: pytest.MonkeyPatch, finished: Finished
) -> None:
    keys = ("model=mlp", "rounds=2")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    monkeypatch.setattr(registry.find("algorithm", "fedbabu").server, "private", lambda self: [])
    ours = finished(small("algorithm=fedbabu", "finetune=0", *keys), name="fedbabu")
    assert ours["metrics"]["loss"]["personal"] == fedavg["metrics"]["loss"]["personal"]
    assert ours["weights_sha256"] == fedavg["weights_sha256"]


# FedRoD


def test_the_balanced_loss_by_hand() -> None:
    prior, none = log_prior(np.array([3, 1]), 1.0), torch.zeros(1, 2)
    assert torch.softmax(none + prior, 1).tolist() == [[pytest.approx(0.75), pytest.approx(0.25)]]
    assert float(cross_entropy(none + prior, torch.tensor([1]))) == pytest.approx(np.log(4))
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    alike, y = log_prior(np.array([7, 7, 7]), 1.0), torch.tensor([0, 1, 2, 0])
    assert float(cross_entropy(logits + alike, y)) == pytest.approx(float(cross_entropy(logits, y)), abs=1e-6)
    assert log_prior(np.array([3, 0]), 0.0).tolist() == [0, 0]
    with pytest.raises(ConfigError, match="fedrod balances classes"):
        log_prior(np.zeros(0, np.int64), 1.0)


def fedrod(small: Small, *keys: str) -> Any:
    config = small("algorithm=fedrod", "model=mlp", "partition=classes", "partition.classes=2", *keys)
    _, half, (task, *_) = halves(config)
    return task, half, client_data(config, 0)


def test_classes_that_a_client_lacks_get_no_gradient(small: Small) -> None:
    task, half, data = fedrod(small, "local-steps=2")
    uplink = half.train(task, Downlink({"model": task.initial()}), ClientState(), rng())
    rows = task.layout.named(uplink.weights["delta"])["head.weight"]
    moved = np.abs(rows).max(axis=1) > 0
    assert moved.tolist() == (task.labels > 0).tolist()
    assert 0 < moved.sum() < len(moved)
    assert set(data.y_train.tolist()) == set(np.flatnonzero(moved).tolist())


def test_a_step_of_both_heads_by_hand(small: Small) -> None:
    """One step on all samples: the personal head sees features and logits from before it, and is added to the other."""
    task, half, data = fedrod(small, "local-steps=1", "batch-size=5000")
    state, start, lr = ClientState(), task.initial(), task.lr
    uplink = half.train(task, Downlink({"model": start}), state, rng())
    named, x = task.layout.named(start), data.x_train.reshape(len(data.y_train), -1)
    hidden = np.maximum(x @ named["base.0.weight"].T + named["base.0.bias"], 0)
    features = np.maximum(hidden @ named["base.2.weight"].T + named["base.2.bias"], 0)
    logits = features @ named["head.weight"].T + named["head.bias"]

    def slope(z: Any) -> Any:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        off = (p / p.sum(axis=1, keepdims=True) - np.eye(10)[data.y_train]) / len(x)
        return np.concatenate([(off.T @ features).reshape(-1), off.sum(axis=0)])

    with np.errstate(divide="ignore"):
        generic, personal = slope(logits + np.log(task.labels)), slope(logits)  # psi_k = 0 at first
    head = task.layout.part("head")
    np.testing.assert_allclose(state.weights["head"].parameters, -lr * personal, atol=2e-6)
    np.testing.assert_allclose(uplink.weights["delta"].only(head).parameters, -lr * generic, atol=2e-6)
    trained = Weights(start.parameters + uplink.weights["delta"].parameters)
    used = half.personalize(task, Downlink({"model": trained}), state, rng())
    summed = trained.only(head).parameters + state.weights["head"].parameters
    assert np.array_equal(used.only(head).parameters, summed)
    assert np.array_equal(used.only(~head).parameters, trained.only(~head).parameters)
    np.testing.assert_allclose(uplink.local.parameters, used.parameters, atol=1e-6)


@BOTH
def test_without_balance_the_global_model_is_fedavgs_bitwise(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "local-steps=3", "momentum=0.5", "participation=0.5")
    ours = finished(small("algorithm=fedrod", "fedrod.gamma=0", *keys), name="fedrod")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert ours["metrics"]["loss"]["global"] == fedavg["metrics"]["loss"]["global"]
    assert ours["metrics"]["loss"]["personal"] != fedavg["metrics"]["loss"]["personal"]


def test_an_untrained_personal_head_is_the_global_model(small: Small) -> None:
    task, half, _ = fedrod(small)
    received = task.initial()
    assert half.personalize(task, Downlink({"model": received}), ClientState(), rng()) is received


# LG-FedAvg


@pytest.mark.parametrize(
    ("model", "layers", "private"),
    [
        ("mlp", 2, ["base.0"]),
        ("mlp", 1, ["base.0", "base.2"]),
        ("mlp", 3, []),
        ("mlr", 2, []),
        ("cnn-bn", 2, ["base.0", "base.1", "base.4", "base.5"]),
        ("cnn-bn", 3, ["base.0", "base.1"]),
    ],
)
def test_the_last_layers_with_a_matrix_are_shared(model: str, layers: int, private: list[str], small: Small) -> None:
    config = small("algorithm=lg-fedavg", f"lg-fedavg.layers={layers}", f"model={model}")
    strategy, _, (task, *_) = halves(config)
    assert list(strategy.private()) == private
    rest = ~task.layout.part(*private)
    assert (strategy.part.size, strategy.part.buffer_size) == (rest.size, rest.buffer_size)


@BOTH
@pytest.mark.parametrize(("layers", "limit"), [(9, "fedavg"), (0, "local")])
def test_limits_of_lg_fedavg(layers: int, limit: str, model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "local-steps=2")
    ours = finished(small("algorithm=lg-fedavg", f"lg-fedavg.layers={layers}", *keys), name="lg-fedavg")
    other = finished(small(f"algorithm={limit}", *keys), name=limit)
    assert ours["accuracy"]["personal"]["per_client"] == other["accuracy"]["personal"]["per_client"]
    assert ours["metrics"]["loss"]["local"] == other["metrics"]["loss"]["local"]


def test_lg_fedavg_is_the_opposite_of_fedper(small: Small) -> None:
    keys = ("model=mlp", "local-steps=2")
    per = halves(small("algorithm=fedper", "fedper.personal=base.2,head", *keys))[0]
    lg = halves(small("algorithm=lg-fedavg", "lg-fedavg.layers=2", *keys))[0]
    assert np.array_equal(per.part.parameters, ~lg.part.parameters)
