"""Local training and FedAvg-FT: personal models never reach the server."""

from collections.abc import Callable
from typing import Any

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.rng import stream
from fedsim.weights import Weights

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def accuracy(task: TorchTask, model: Weights) -> float:
    found = task.evaluate(model)
    assert found is not None
    return found["accuracy"]


def test_local_clients_train_alone(small: Small, finished: Finished) -> None:
    config = small("algorithm=local", "rounds=3")
    summary = finished(config)
    data = client_data(config, 2)
    task = TorchTask(config, data, data.classes)
    alone = task.initial()
    for step in range(3):
        alone = task.fit(alone, stream(config.seed, 2, step, 0, "train")).weights
    assert summary["accuracy"]["personal"]["per_client"][2] == accuracy(task, alone)
    assert summary["accuracy"]["local"] == summary["accuracy"]["personal"]
    nothing = {"best": None, "best_round": None, "final": None, "per_client": [], "last_tested": []}
    assert summary["accuracy"]["global"] == nothing
    assert summary["bytes_up"] == 0


def test_fine_tuning_does_not_change_the_global_model(small: Small, finished: Finished) -> None:
    plain = finished(small("algorithm=fedavg"), name="plain")
    tuned = finished(small("algorithm=fedavg-ft", "fedavg-ft.epochs=3"), name="tuned")
    assert tuned["weights_sha256"] == plain["weights_sha256"]
    assert tuned["accuracy"]["global"] == plain["accuracy"]["global"]
    assert tuned["accuracy"]["personal"] != plain["accuracy"]["personal"]


def test_the_tuned_copy_is_the_global_model_trained_further(small: Small, finished: Finished) -> None:
    config = small("algorithm=fedavg-ft", "fedavg-ft.epochs=2", "rounds=1", "clients=1", "partition=iid")
    summary = finished(config)
    data = client_data(config, 0)
    task = TorchTask(config, data, data.classes)
    model = task.fit(task.initial(), stream(config.seed, 0, 0, 0, "train")).weights
    copy = task.fit(model, stream(config.seed, 0, 1, 0, "personalise"), epochs=2).weights
    assert summary["accuracy"]["personal"]["final"] == accuracy(task, copy)
