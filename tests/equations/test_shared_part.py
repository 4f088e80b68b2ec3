"""FedPer and FedBN: what is exchanged, what stays, and their limits FedAvg and local training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.payload import Arrival, ClientState, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights
from tests.equations.halves import halves

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_the_base_is_the_mean_by_samples_and_heads_never_meet() -> None:
    layout = Layout((Tensor("base.w", (1, 1), "base"), Tensor("head.w", (1, 1), "head")))
    algorithm = registry.find("algorithm", "fedper")
    server = algorithm.server(algorithm.params(), RunConfig(clients=2))
    server.attach(Fleet([Client(i, i, 1, 1, (1,)) for i in (0, 1)], layout, Weights(np.float32([5, 7]))))
    state = server.init(server.fleet.initial, server.fleet)
    assert state.model.parameters.tolist() == [5]
    sent = [Uplink(n, {"delta": Weights(np.float32([d]))}) for n, d in ((1, 4.0), (3, 8.0))]
    state = server.update(state, [Arrival(i, 0, uplink, 0.0, 1.0) for i, uplink in enumerate(sent)])
    assert state.model.parameters.tolist() == [5 + (1 * 4 + 3 * 8) / 4]  # (1)
    down = server.instruct(state, 0, train=True)
    assert (list(down.weights), down.numbers, down.shared) == (["shared"], {"private": "head"}, False)
    assert server.global_model(state) is None


@pytest.mark.parametrize(("algorithm", "model"), [("fedper", "mlp"), ("fedbn", "cnn-bn")])
def test_a_client_keeps_its_part_and_sends_the_rest(algorithm: str, model: str, small: Small) -> None:
    config = small(f"algorithm={algorithm}", f"model={model}", "local-steps=2")
    server, half, (task, *_) = halves(config)
    state = server.init(task.initial(), server.fleet)
    down, kept, rng = server.instruct(state, 0, train=True), ClientState(), np.random.default_rng
    uplink = half.train(task, down, kept, rng(0))
    whole = task.fit(task.initial(), rng(0)).weights  # FedAvg's job from the same start
    private = ~server.part
    for own, trained in ((kept.weights["private"], whole.only(private)), (uplink.local, whole)):
        assert np.array_equal(own.parameters, trained.parameters)
        assert np.array_equal(own.buffers, trained.buffers)
    assert np.array_equal(
        uplink.weights["delta"].parameters, (whole.parameters - task.initial().parameters)[~private.parameters]
    )
    assert 0 < private.size < task.layout.size
    assert private.buffer_size == (task.layout.buffer_size if algorithm == "fedbn" else 0)
    again = half.personalize(task, down, kept, rng(0))  # the received part with the client's own
    assert np.array_equal(again.only(private).parameters, kept.weights["private"].parameters)
    assert np.array_equal(again.only(server.part).parameters, state.model.parameters)


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
@pytest.mark.parametrize(("private", "limit"), [("", "fedavg"), ("all", "local")])
def test_limits_of_fedper(private: str, limit: str, model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "rounds=3", "local-steps=2")
    ours = finished(small("algorithm=fedper", f"fedper.personal={private}", *keys), name="fedper")
    other = finished(small(f"algorithm={limit}", *keys), name=limit)
    assert ours["accuracy"]["personal"]["per_client"] == other["accuracy"]["personal"]["per_client"]
    assert ours["metrics"]["loss"]["local"] == other["metrics"]["loss"]["local"]


def test_fedbn_without_normalization_layers_is_fedavg_bitwise(small: Small, finished: Finished) -> None:
    ours, fedavg = (finished(small(f"algorithm={name}", "model=cnn"), name=name) for name in ("fedbn", "fedavg"))
    assert ours["metrics"]["loss"]["personal"] == fedavg["metrics"]["loss"]["personal"]
    assert ours["bytes_up"] == fedavg["bytes_up"]


def test_a_stage_that_the_model_does_not_have_is_refused(small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=r"unknown part of the model 'neck'.*Choices: .*base.*head"):
        finished(small("algorithm=fedper", "fedper.personal=neck"))


def test_batch_norm_is_found_by_type(small: Small) -> None:
    _, _, (task, *_) = halves(small("algorithm=fedbn", "model=cnn-bn"))
    norm = task.layout.part("batch-norm")
    names = [t.name for t in task.layout.parameters if t.kind == "batch-norm"]
    assert names == ["base.1.weight", "base.1.bias", "base.5.weight", "base.5.bias"]
    assert norm.size == 2 * (20 + 50)
    assert norm.buffer_size == task.layout.buffer_size == 2 * (20 + 50)


@pytest.mark.parametrize("name", ["fedbn", "fedper"])
def test_a_newcomer_uses_the_initial_private_part(name: str, small: Small) -> None:
    server, half, (task, *_) = halves(small(f"algorithm={name}", "model=cnn-bn"))
    state, private = server.init(task.initial(), server.fleet), ~server.part
    state.model.parameters[:] += 1  # what others have trained
    used = half.personalize(task, server.instruct(state, 0, train=False), ClientState(), np.random.default_rng(0))
    assert np.array_equal(used.only(private).parameters, task.initial().only(private).parameters)
    assert np.array_equal(used.only(private).buffers, task.initial().only(private).buffers)
    assert np.array_equal(used.only(server.part).parameters, state.model.parameters)


def test_fedper_keeps_single_layers_too(small: Small) -> None:
    server, _, (task, *_) = halves(small("algorithm=fedper", "model=mlp", "fedper.personal=base.2,head"))
    kept = [t.name for t in task.layout.parameters if not server.part.parameters[task.layout.slices[t.name]].any()]
    assert kept == ["base.2.weight", "base.2.bias", "head.weight", "head.bias"]
