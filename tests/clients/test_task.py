"""The one training loop, and the vectors around it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from clients import task as tasks
from clients.local_sgd import batches, length, one_step
from clients.task import TorchTask, device_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from partitions.silo import client_data


def task_of(config: RunConfig) -> TorchTask:
    data = client_data(config, 0)
    return TorchTask(config, data, data.classes)


def test_every_sample_once_per_epoch() -> None:
    rng = np.random.default_rng(0)
    epoch = list(batches(10, 4, 3, rng))
    assert [len(b) for b in epoch] == [4, 4, 2]
    assert sorted(np.concatenate(epoch)) == list(range(10))
    two = list(batches(10, 4, 6, rng))
    assert sorted(np.concatenate(two[3:])) == list(range(10))
    assert np.concatenate(two[:3]).tolist() != np.concatenate(two[3:]).tolist()


def test_length_counts_epochs_or_steps() -> None:
    config = RunConfig(batch_size=4, local_epochs=2)
    assert length(10, config) == 6
    assert length(10, config, epochs=5) == 15
    assert length(10, config.replace(local_steps=7)) == 7
    assert length(10, config.replace(local_steps=7), epochs=1) == 3
    assert length(10, config.replace(local_epochs=0)) == 0


def test_no_training_returns_the_start(small: Callable[..., RunConfig]) -> None:
    task = task_of(small("local-epochs=0"))
    start = task.initial()
    assert np.array_equal(task.fit(start, np.random.default_rng(0)).model, start)


def test_the_hook_changes_the_gradient(small: Callable[..., RunConfig]) -> None:
    task = task_of(small())
    start = task.initial()

    def stop(parameters: object) -> None:
        for parameter in parameters:
            parameter.grad.zero_()

    assert np.array_equal(task.fit(start, np.random.default_rng(0), lesson=one_step(stop)).model, start)
    assert not np.array_equal(task.fit(start, np.random.default_rng(0)).model, start)


def test_clients_of_one_process_do_not_disturb_each_other(small: Callable[..., RunConfig]) -> None:
    config = small("model=mlp")
    one, two = (TorchTask(config, client_data(config, c), 10) for c in (0, 1))
    alone = one.fit(one.initial(), np.random.default_rng(0)).model
    two.fit(two.initial(), np.random.default_rng(1))
    assert np.array_equal(one.fit(one.initial(), np.random.default_rng(0)).model, alone)


def test_initial_weights_depend_on_the_seed_alone(small: Callable[..., RunConfig]) -> None:
    first = task_of(small("seed=3")).initial()
    tasks.network.cache_clear()
    torch.manual_seed(99)
    assert np.array_equal(task_of(small("seed=3")).initial(), first)
    assert not np.array_equal(task_of(small("seed=4")).initial(), first)


def test_devices() -> None:
    assert device_of("cpu").type == "cpu"
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="GPUs are visible here"):
        device_of(f"cuda:{torch.cuda.device_count()}")
