"""The training loop: batches, steps, hooks, initial weights and devices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clients import task as tasks
from fedsim.clients.task import TorchTask, device_of
from fedsim.clients.training import batches, one_step, steps_of
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data


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


def test_batches_in_order_go_round_from_where_they_stopped() -> None:
    found = batches(10, 4, 5, np.random.default_rng(0), start=5)
    assert [b.tolist() for b in found] == [[8, 9], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]


def test_batches_in_order_are_the_same_in_two_jobs_as_in_three(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    """A client that trains alone reads the same six mini-batches in two jobs as in three; shuffled, it does not."""

    def sha(order: str, *keys: str) -> str:
        config = small("algorithm=local", f"batches={order}", *keys)
        return str(finished(config, name=" ".join([order, *keys]))["weights_sha256"])

    two, three = ("rounds=2", "local-steps=3"), ("rounds=3", "local-steps=2")
    assert sha("in-order", *two) == sha("in-order", *three)
    assert sha("shuffled", *two) != sha("shuffled", *three)


def test_batches_read_to_personalize_do_not_count(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    keys = ("algorithm=fedavg-ft", "batches=in-order", "rounds=4", "local-steps=1")
    often, seldom = (finished(small(*keys, f"eval-every={n}"), name=str(n)) for n in (1, 4))
    assert often["weights_sha256"] == seldom["weights_sha256"]
    assert often["accuracy"]["personal"]["per_client"] == seldom["accuracy"]["personal"]["per_client"]


def test_steps_count_epochs_or_steps() -> None:
    config = RunConfig(batch_size=4, local_epochs=2)
    assert steps_of(10, config) == 6
    assert steps_of(10, config, epochs=5) == 15
    assert steps_of(10, config.replace(local_steps=7)) == 7
    assert steps_of(10, config.replace(local_steps=7), epochs=1) == 3
    assert steps_of(10, config.replace(local_epochs=0)) == 0


def test_no_training_returns_the_start(small: Callable[..., RunConfig]) -> None:
    task = task_of(small("local-epochs=0"))
    start = task.initial()
    assert np.array_equal(task.fit(start, np.random.default_rng(0)).weights.parameters, start.parameters)


def test_the_hook_changes_the_gradient(small: Callable[..., RunConfig]) -> None:
    task = task_of(small())
    start = task.initial()

    def stop(parameters: object) -> None:
        for parameter in parameters:
            parameter.grad.zero_()

    def after(**how: Any) -> Any:
        return task.fit(start, np.random.default_rng(0), **how).weights.parameters

    assert np.array_equal(after(gradient=stop), start.parameters)
    assert np.array_equal(after(step=one_step(stop)), start.parameters)
    assert not np.array_equal(after(), start.parameters)


def test_clients_of_one_process_do_not_disturb_each_other(small: Callable[..., RunConfig]) -> None:
    config = small("model=mlp")
    one, two = (TorchTask(config, client_data(config, c), 10) for c in (0, 1))
    alone = one.fit(one.initial(), np.random.default_rng(0)).weights.parameters
    two.fit(two.initial(), np.random.default_rng(1))
    assert np.array_equal(one.fit(one.initial(), np.random.default_rng(0)).weights.parameters, alone)


def test_initial_weights_depend_on_the_seed_alone(small: Callable[..., RunConfig]) -> None:
    first = task_of(small("seed=3")).initial().parameters
    tasks.network.cache_clear()
    torch.manual_seed(99)
    assert np.array_equal(task_of(small("seed=3")).initial().parameters, first)
    assert not np.array_equal(task_of(small("seed=4")).initial().parameters, first)


def test_devices() -> None:
    assert device_of("cpu").type == "cpu"
    assert device_of("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="GPUs are visible here"):
        device_of(f"cuda:{torch.cuda.device_count()}")
