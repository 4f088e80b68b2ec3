"""Local training and FedAvg-FT: what is personal stays personal."""

from collections.abc import Callable
from typing import Any

from clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.rng import stream
from partitions.silo import client_data

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_local_clients_train_alone(small: Small, finished: Finished) -> None:
    config = small("algorithm=local", "rounds=3")
    summary = finished(config)
    data = client_data(config, 2)
    task = TorchTask(config, data, data.classes)
    alone = task.initial()
    for step in range(3):
        alone = task.fit(alone, stream(config.seed, 2, step, 0, "train")).model
    assert summary["accuracy"]["personal"]["per_client"][2] == task.accuracy(alone)
    assert summary["accuracy"]["local"] == summary["accuracy"]["personal"]
    assert summary["accuracy"]["global"] == {"best": None, "best_round": None, "final": None, "per_client": []}
    assert summary["bytes_up"] == 0


def test_fine_tuning_leaves_the_federation_alone(small: Small, finished: Finished) -> None:
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
    model = task.fit(task.initial(), stream(config.seed, 0, 0, 0, "train")).model
    copy = task.fit(model, stream(config.seed, 0, 1, 0, "personalise"), epochs=2).model
    assert summary["accuracy"]["personal"]["final"] == task.accuracy(copy)
