"""FedGen: the ensemble and the diversity by hand, training of the generator, FedAvg as a limit, servers without torch."""

from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np
import pytest
import torch

from fedsim import registry
from fedsim.clients.fedgen import FedGenClient
from fedsim.clients.generator import Ensemble, Generator, Sizes, diversity, initial_generator, train_generator
from fedsim.clients.task import TorchTask
from fedsim.clients.training import weights_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, ClientState, Downlink, Uplink
from fedsim.server import app as server_app
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights
from tests.equations.halves import params_of

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_heads_are_weighed_by_their_clients_share_of_the_label() -> None:
    """Heads that say (1, 2) and (5, -2) on f = 1; client 1 holds 3 of 4 samples of class 0 and none of class 1."""
    matrices, biases = [[[1.0], [1.0]], [[4.0], [-2.0]]], [[0.0, 1.0], [1.0, 0.0]]
    ensemble = Ensemble(np.array(matrices), np.array(biases), np.array([[1, 2], [3, 0]]))
    output = ensemble(torch.ones(2, 1), torch.tensor([0, 1]))
    np.testing.assert_allclose(output, [[0.25 * 1 + 0.75 * 5, 0.25 * 2 - 0.75 * 2], [1, 2]])
    labels = ensemble.draw(600, np.random.default_rng(0))
    assert (labels == 0).float().mean().item() == pytest.approx(4 / 6, abs=0.06)


def test_labels_that_nobody_there_holds_are_not_drawn() -> None:
    ensemble = Ensemble(np.zeros((1, 3, 1)), np.zeros((1, 3)), np.array([[2, 0, 5]]))
    assert set(ensemble.draw(200, np.random.default_rng(0)).tolist()) == {0, 2}


def test_the_diversity_by_hand() -> None:
    noise = torch.tensor([[0.0, 0.0], [1.0, 0.0]])  # mean absolute difference 1/2
    assert diversity(noise, torch.ones(2, 3)).item() == 1  # a constant generator
    features = torch.tensor([[0.0], [4.0]])
    assert diversity(noise, features).item() == pytest.approx(exp(-(2 * 0.5 * 4) / 4))


def test_the_generator_is_a_dense_network_with_batch_normalization() -> None:
    sizes = Sizes(noise=2, classes=3, hidden=4, features=5)
    weights = initial_generator(sizes, seed=1)
    assert (weights.parameters.size, weights.buffers.size) == (5 * 4 + 4 + 8 + 4 * 5 + 5, 8)
    assert np.array_equal(weights.parameters, initial_generator(sizes, 1).parameters)
    assert not np.array_equal(weights.parameters, initial_generator(sizes, 2).parameters)
    generator = Generator(sizes, weights).eval()
    noise, labels = torch.tensor([[0.5, 0.25]]), torch.tensor([2])
    first, _, _, last = generator.layers
    hidden = torch.relu((torch.tensor([[0.5, 0.25, 0, 0, 1]]) @ first.weight.T + first.bias) / np.sqrt(1 + 1e-5))
    torch.testing.assert_close(generator(noise, labels), hidden @ last.weight.T + last.bias)
    assert np.array_equal(weights_of(generator).buffers, weights.buffers)


def test_the_generator_learns_what_the_heads_expect_and_goes_on_where_it_stopped() -> None:
    sizes = Sizes(noise=4, classes=3, hidden=32, features=6)
    rng = np.random.default_rng(0)
    ensemble = Ensemble(rng.normal(size=(1, 3, 6)), np.zeros((1, 3)), np.array([[5, 5, 5]]))
    start = initial_generator(sizes, 0)
    zeros = np.zeros_like(start.parameters)

    def train(state: Any, steps: int, rng: Any) -> Any:
        return train_generator(sizes, state, ensemble, steps, 16, (0.01, 0.0), rng)

    trained = train((start, zeros, zeros, 0), 150, np.random.default_rng(1))
    generator = Generator(sizes, trained[0]).eval()
    labels = torch.arange(3).repeat(20)
    output = ensemble(generator(generator.noise(60, rng), labels), labels)
    assert torch.nn.functional.cross_entropy(output, labels).item() < 0.05  # one client and an ideal generator: 0
    assert (output.argmax(1) == labels).all()
    draws = np.random.default_rng(1)
    parts = train(train((start, zeros, zeros, 0), 60, draws), 90, draws)
    assert parts[3] == trained[3] == 150
    for ours, whole in zip(parts[1:3], trained[1:3], strict=True):
        assert np.array_equal(ours, whole)
    assert np.array_equal(parts[0].parameters, trained[0].parameters)
    assert not start.buffers[:32].any()  # the start is not changed


def server_of(task: TorchTask) -> Any:
    config = task.config
    server = registry.find("algorithm", "fedgen").server(config.params("fedgen"), config)
    labels = [(3, 1, *[0] * 8), (1, 3, *[1] * 8)]
    clients = [Client(i, i, sum(own), 1, own) for i, own in enumerate(labels)]
    server.attach(Fleet(clients, task.layout, task.initial()))
    return server


def task_of(config: RunConfig) -> TorchTask:
    return TorchTask(config, client_data(config, 0), 10)


def test_the_generator_is_sent_from_the_second_round_on_and_to_train_alone(small: Small) -> None:
    task = task_of(small("algorithm=fedgen", "model=mlp", "fedgen.steps=1"))
    server = server_of(task)
    state = server.init(task.initial(), server.fleet)
    assert list(server.instruct(state, 0, train=True).weights) == ["model"]
    deltas = [np.full(task.layout.size, d, np.float32) for d in (1, 3)]
    matrices, biases = server._heads(
        state, [Arrival(i, 0, Uplink(4, {"delta": Weights(d)}), 0, 1) for i, d in enumerate(deltas)]
    )
    named = task.layout.named(task.initial())
    np.testing.assert_allclose(matrices, [named["head.weight"] + 1, named["head.weight"] + 3], rtol=1e-6)
    np.testing.assert_allclose(biases, [named["head.bias"] + 1, named["head.bias"] + 3], rtol=1e-6)
    state = server.update(state, [Arrival(0, 0, Uplink(4, {"delta": Weights(deltas[0])}), 0.0, 1.0)])
    down = server.instruct(state, 0, train=True)
    assert list(down.weights) == ["model", "generator"]
    assert down.arrays["labels"].tolist() == [4, 4, *[1] * 8]
    assert down.numbers == {"alpha": pytest.approx(9.8), "beta": pytest.approx(9.8)}  # 10 * 0.98
    assert server.instruct(state, 0, train=False).nbytes == task.initial().nbytes
    assert state.generator.steps == 1
    fedavg = task.initial().parameters + 1
    np.testing.assert_array_equal(server.global_model(state).parameters, fedavg)


def test_the_loss_of_a_client_by_hand(small: Small) -> None:
    """A generator that ignores its input (weights 0) always makes the features b; label draws do not matter then."""
    keys = ("model=mlp", "local-steps=1", "batch-size=1000", "fedgen.noise=3", "fedgen.hidden=4")
    config = small("algorithm=fedgen", *keys)
    task, data = task_of(config), client_data(config, 0)
    sizes = Sizes(3, 10, 4, 200)
    weights = initial_generator(sizes, 0)
    constant = np.zeros_like(weights.parameters)
    constant[-200:] = b = np.random.default_rng(1).random(200).astype(np.float32)
    generator = Weights(constant, weights.buffers)
    labels = np.bincount([7], minlength=10)  # all drawn labels are 7

    def found(alpha: float, beta: float) -> float:
        numbers = {"alpha": alpha, "beta": beta}
        down = Downlink({"model": task.initial(), "generator": generator}, {"labels": labels}, numbers)
        uplink = FedGenClient(config.params("fedgen")).train(task, down, ClientState(), np.random.default_rng(0))
        return uplink.metrics["loss"]

    named = task.layout.named(task.initial())
    said = named["head.weight"] @ b + named["head.bias"]
    said = said - np.log(np.exp(said).sum())
    network = task.network("model").module
    with torch.no_grad():
        task.evaluate(task.initial())  # loads the initial model
        output = network(torch.from_numpy(data.x_train)).log_softmax(1).numpy()
    plain = task.fit(task.initial(), np.random.default_rng(0)).loss
    assert found(0.0, 0.0) == pytest.approx(plain, rel=1e-6)
    assert found(2.0, 0.0) == pytest.approx(plain - 2 * said[7], rel=1e-5)
    taught = (np.exp(said) * (said - output)).sum(axis=1).mean()
    assert found(0.0, 3.0) == pytest.approx(plain + 3 * taught, rel=1e-5)
    assert found(2.0, 3.0) == pytest.approx(plain - 2 * said[7] + 3 * taught, rel=1e-5)


@pytest.mark.parametrize("model", ["mlp", "cnn-bn"])
def test_without_its_terms_it_is_fedavg_bitwise(model: str, small: Small, finished: Finished) -> None:
    keys = (f"model={model}", "rounds=3", "momentum=0.5", "local-steps=3", "participation=0.5")
    ours = finished(small("algorithm=fedgen", "fedgen.alpha=0", "fedgen.beta=0", *keys), name="fedgen")
    fedavg = finished(small("algorithm=fedavg", *keys), name="fedavg")
    assert ours["metrics"] == fedavg["metrics"]
    assert ours["bytes_down"] == fedavg["bytes_down"]


def test_a_server_without_torch_is_refused_by_name(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the server of fedgen needs torch: install it on the server's machine"):
        server_app.build(small("algorithm=fedgen"))
    server_app.build(small("algorithm=fedavg"))


def test_bad_parameters_are_refused_by_name(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"fedgen.decay must be above 0 and at most 1"):
        small("algorithm=fedgen", "fedgen.decay=0")
    with pytest.raises(ConfigError, match=r"fedgen.steps must be at least 1"):
        params_of("fedgen", steps=0)
