"""The model that a client uses, for every client half: on quadratics beside plain NumPy, and on digits."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from fedsim.clients.spfl import SpflClient
from fedsim.clients.task import TorchTask
from fedsim.clients.twafl import LayerWise
from fedsim.config import NoParams, RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.payload import ClientState, Downlink
from fedsim.results import checkpoint as checkpoints
from fedsim.weights import Weights
from tests.equations.halves import params_of
from tests.quadratics import Federation

A = np.array([[1.0, 4.0], [3.0, 0.2], [2.0, 2.0]])
B = np.array([[2.0, -1.0], [-3.0, 5.0], [4.0, 4.0]])
LR, STEPS = 0.1, 3
Small = Callable[..., RunConfig]


def descent(client: int, w: Any, steps: int = STEPS, lr: float = LR) -> Any:
    """Gradient descent on this client's function alone."""
    for _ in range(steps):
        w = w - lr * A[client] * (w - B[client])
    return w


def shared(federation: Federation, client: int) -> Any:
    return federation.state.model.parameters


def mixture(federation: Federation, client: int) -> Any:
    kept = federation.states[client]
    alpha = kept.numbers["alpha"]
    return alpha * kept.weights["own"].parameters + (1 - alpha) * shared(federation, client)


def last_trained(federation: Federation, client: int) -> Any:
    """What the client sent last, not the cloud model that it receives."""
    state = federation.state
    assert np.abs(state.models[client] - state.clouds[client]).max() > 0.1
    return state.models[client]


CASES: dict[str, tuple[dict[str, Any], Callable[[Federation, int], Any]]] = {
    "fedavg": ({}, shared),
    "fedbuff": ({}, shared),
    "lga": ({}, shared),
    "fedprox": ({"mu": 5.0}, shared),
    "fedasync": ({"rho": 5.0}, shared),
    "scaffold": ({}, shared),
    "plga": ({}, lambda f, i: f.state.personal[i]),
    "apfl": ({}, mixture),
    "fedamp": ({}, last_trained),
    "heurfedamp": ({}, last_trained),
    "fedavg-ft": ({}, lambda f, i: descent(i, shared(f, i))),
    "fedprox-ft": ({"mu": 5.0, "epochs": 2}, lambda f, i: descent(i, shared(f, i), 2)),
    "fedupdate": ({"steps": 4}, lambda f, i: descent(i, shared(f, i), 4)),
    "local": ({}, lambda f, i: descent(i, np.zeros(2), 2 * STEPS)),
    "per-fedavg": ({"alpha": 0.3, "steps": 2}, lambda f, i: descent(i, shared(f, i), 2, 0.3)),
    "pfedme": ({"lam": 4.0}, lambda f, i: f.states[i].weights["personal"].parameters),
    "spfl": ({}, lambda f, i: f.state.models[i]),
    "spfl-w": ({}, lambda f, i: f.state.models[i]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_client_uses_after_two_rounds(name: str) -> None:
    params, expected = CASES[name]
    federation = Federation(name, A, B, local_steps=STEPS, lr=LR, **params)
    for _ in range(2):
        federation.round()
    for client in range(3):
        kept = federation.states[client]
        before = checkpoints.dump(deepcopy(kept))
        found = federation.personal(client)
        np.testing.assert_allclose(found, expected(federation, client), rtol=1e-5, atol=1e-6)
        np.testing.assert_equal(checkpoints.dump(kept), before)  # it must not change the client's state


def test_clients_that_use_the_global_model_return_the_same_object() -> None:
    """The client app then evaluates it once, as `global` and as `personal`."""
    for name in (n for n, (_, expected) in CASES.items() if expected is shared):
        federation = Federation(name, A, B, local_steps=1, lr=LR)
        down = federation.server.instruct(federation.state, 0, train=False)
        used = federation.client.personalize(federation.tasks[0], down, ClientState(), np.random.default_rng(0))
        assert used is down.model


def test_before_its_first_job_a_client_uses_what_it_received() -> None:
    for name in ("apfl", "fedamp", "heurfedamp", "pfedme", "local"):
        assert Federation(name, A, B, local_steps=1, lr=LR).personal(1).tolist() == [0, 0]


# With mini-batches


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("name", ["spfl", "spfl-w"])
def test_a_probe_is_a_training_of_its_own(name: str, small: Small) -> None:
    task = task_of(small("batch-size=16"))
    half, start, order = SpflClient(params_of(name)), task.initial(), rng()
    numbers = {"probe": True, "finetune": False}
    uplink = half.train(task, Downlink({"model": start}, numbers=numbers), ClientState(), rng())
    step = half.batch_step(task, Downlink(), ClientState())
    for sent in ("delta", "probe"):  # in this order, with independent orders of the mini-batches
        trained = task.fit(start, order, step=step).weights.parameters
        assert np.array_equal(uplink.weights[sent].parameters, trained - start.parameters)
    assert not np.array_equal(uplink.weights["delta"].parameters, uplink.weights["probe"].parameters)
    plain = half.train(task, Downlink({"model": start}, numbers={**numbers, "probe": False}), ClientState(), rng())
    assert list(plain.weights) == ["delta"]


def test_spfl_fine_tunes_its_own_model_at_the_end_alone(small: Small) -> None:
    task = task_of(small("batch-size=16"))
    half = SpflClient(params_of("spfl", finetune_steps=3, finetune_lr=0.2, finetune_batch=8))
    own, mean = task.initial(), Weights(np.zeros(task.layout.size, np.float32))

    def used(finetune: bool) -> Weights:
        down = Downlink({"model": mean, "personal": own}, numbers={"probe": True, "finetune": finetune})
        return half.personalize(task, down, ClientState(), rng())

    assert used(finetune=False) is own
    data, order, model = client_data(task.config, 0), rng().permutation(task.examples), own.parameters
    for step in range(3):  # linear model: the gradient of the cross entropy by hand, on 8 of the 16 samples of a batch
        chosen = order[16 * step : 16 * step + 8]
        model = model - 0.2 * gradient(model, data.x_train[chosen], data.y_train[chosen])
    np.testing.assert_allclose(used(finetune=True).parameters, model, atol=2e-6)


def gradient(w: Any, x: Any, y: Any) -> Any:
    """Of the mean cross entropy of a linear classifier with 10 classes; w holds its matrix, then its biases."""
    matrix, bias, flat = w[:-10].reshape(10, -1).astype(np.float64), w[-10:], x.reshape(len(y), -1)
    logits = flat @ matrix.T + bias
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    off = (chances - np.eye(10)[y]) / len(y)
    return np.concatenate([(off.T @ flat).reshape(-1), off.sum(axis=0)])


def test_twafl_keeps_the_deep_part_between_the_rounds_that_exchange_it(small: Small) -> None:
    task = task_of(small("model=mlp", "batch-size=64"))
    half, kept, deep = LayerWise(NoParams()), ClientState(), task.layout.part("head").parameters
    numbers = {"deep-stages": "head", "deep": False}
    shallow = [Weights(np.full((~deep).sum(), value, np.float32)) for value in (0.01, 0.02)]
    model = task.initial().parameters
    for received in shallow:
        model = model.copy()
        model[~deep] = received.parameters
        down = Downlink({"shallow": received}, numbers=numbers, shared=False)
        assert np.array_equal(half.personalize(task, down, kept, rng()).parameters, model)
        uplink = half.train(task, down, kept, rng())
        model = task.fit(Weights(model), rng()).weights.parameters
        assert list(uplink.weights) == ["shallow"]
        assert np.array_equal(uplink.weights["shallow"].parameters, model[~deep])
        assert np.array_equal(uplink.local.parameters, model)
    whole = Downlink({"model": task.initial()}, numbers={**numbers, "deep": True})
    assert np.array_equal(half.personalize(task, whole, kept, rng()).parameters, task.initial().parameters)
    uplink = half.train(task, whole, kept, rng())
    assert sorted(uplink.weights) == ["deep", "shallow"]
    assert np.array_equal(uplink.weights["deep"].parameters, uplink.local.parameters[deep])
