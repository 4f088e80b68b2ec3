"""FedAvg against numbers worked by hand, and against plain SGD."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients.models import CNN
from fedsim.clients.task import TorchTask
from fedsim.clients.training import flatten, steps_of
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.files import read_npz
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, Uplink
from fedsim.rng import stream
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.fedavg import FEDAVG
from fedsim.weights import Weights


def arrival(client: int, examples: int, delta: list[float], buffers: list[float]) -> Arrival:
    update = Weights(np.array(delta, np.float32), np.array(buffers, np.float32))
    return Arrival(client, 0, Uplink(examples, {"delta": update}), 0.0, 1.0)


def test_two_clients_by_hand() -> None:
    layout = Layout((Tensor("w", (2,), "head"),), (Tensor("mean", (1,), "norm"),))
    clients = [Client(i, i, 1, 1, (1,)) for i in range(2)]
    fleet = Fleet(clients, layout, Weights(np.array([1, 1], np.float32), np.array([0], np.float32)))
    strategy = FEDAVG.server(FEDAVG.params(), RunConfig())
    strategy.attach(fleet)
    state = strategy.update(
        strategy.init(fleet.initial, fleet), [arrival(0, 30, [4, 0], [8]), arrival(1, 10, [0, 8], [0])]
    )
    # models [5, 1] and [1, 9] with weights 3/4 and 1/4
    assert state.model.parameters.tolist() == [4, 3]
    assert state.model.buffers.tolist() == [6]
    assert fleet.initial.parameters.tolist() == [1, 1]


def test_one_client_is_centralized_sgd_step_for_step(small: Callable[..., RunConfig]) -> None:
    """Rounds of federated averaging with one client, beside torch's own SGD on that client's data and batches."""
    config = small("clients=1", "rounds=3", "partition=iid", "model=cnn", "lr=0.1", "weight-decay=0.001")
    data = client_data(config, 0)
    task = TorchTask(config, data, data.classes)
    federated = [task.initial()]
    for step in range(config.rounds):
        federated.append(task.fit(federated[-1], stream(config.seed, 0, step, 0, "train")).weights)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(config.seed, "model").integers(2**63)))
        model = CNN(data.x_train.shape[1:], data.classes)
    model.to(memory_format=torch.channels_last)
    x, y = torch.from_numpy(data.x_train).to(memory_format=torch.channels_last), torch.from_numpy(data.y_train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.001)
    for step in range(config.rounds):
        order = stream(config.seed, 0, step, 0, "train").permutation(len(y))
        for start in range(0, len(y), config.batch_size):
            batch = order[start : start + config.batch_size]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        np.testing.assert_allclose(federated[step + 1].parameters, flatten(model.parameters()), rtol=1e-5, atol=1e-6)


def test_a_run_with_one_client_ends_at_that_model(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    config = small("clients=1", "rounds=3", "partition=iid")
    finished(config)
    data = client_data(config, 0)
    task = TorchTask(config, data, data.classes)
    model = task.initial()
    for step in range(config.rounds):
        model = task.fit(model, stream(config.seed, 0, step, 0, "train")).weights
    with np.load(tmp_path / "run" / "model.npz") as saved:
        got = np.concatenate([saved[t.name].reshape(-1) for t in task.layout.parameters])
    np.testing.assert_allclose(got, model.parameters, rtol=1e-5, atol=1e-7)


def test_whole_batches_and_one_epoch_are_fedsgd(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    """batch-size=0: the mean over clients is one step of gradient descent on all samples, whatever the split."""
    models = []
    for clients in (1, 4):
        keys = ["batch-size=0", "rounds=3", "lr=0.3", f"clients={clients}"]
        launch(small(*keys, f"out={tmp_path / str(clients)}"), "inline")
        models.append(read_npz(tmp_path / str(clients) / "model.npz"))
    for name, whole in models[0].items():
        assert models[1][name] == pytest.approx(whole, abs=2e-6)
    start = small("batch-size=0", "local-steps=2")
    assert (steps_of(70, start), steps_of(70, start, epochs=5)) == (2, 5)
