"""Public data: whose it is, that nobody trains or tests on it, and that a run without it is as ever."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.algorithm import Algorithm
from fedsim.clients.task import TorchTask
from fedsim.config import NoParams, RunConfig, read
from fedsim.errors import ConfigError, FedsimError
from fedsim.layout import Layout
from fedsim.partitions.client_data import ClientDataSource, client_data, load_dataset, shares
from fedsim.partitions.public import public_data
from fedsim.server.app import build
from fedsim.server.fleet import Client, Fleet
from fedsim.server.roll_call import check_clients, roll_call
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
CLASS_SPLITS = ["iid", "dirichlet", "pathological", "practical", "label-skew"]


def own_file(folder: Path, name: str, shape: tuple[int, ...] = (8, 8), classes: int = 10) -> None:
    draw = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("test", 20)):
        arrays[f"x_{part}"] = draw.integers(0, 255, (count, *shape)).astype(np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % classes
    np.savez(folder / f"{name}.npz", **arrays)


@pytest.mark.parametrize("partition", [p for p in CLASS_SPLITS if p in registry.names("partition")])
def test_public_samples_are_training_samples_that_no_client_has(partition: str) -> None:
    config = read(None, [f"partition={partition}", "clients=4", "public=100"])
    public, train = public_data(config), len(load_dataset(config).labels.train)
    assert public is not None
    assert len(np.unique(public.indices)) == 100
    assert public.indices.max() < train
    for share in shares(config):
        assert not np.isin(public.indices, np.concatenate([share.train, share.test])).any()


def test_what_remains_is_split_as_a_whole() -> None:
    config = read(None, ["clients=4", "public=100"])
    held = np.concatenate([np.concatenate([share.train, share.test]) for share in shares(config)])
    public, everything = public_data(config), len(load_dataset(config).targets)
    assert public is not None
    assert np.array_equal(np.sort(np.concatenate([held, public.indices])), np.arange(everything))


def test_it_is_the_same_for_every_client_and_another_for_another_seed(small: Small) -> None:
    source = ClientDataSource(small("public=50"))
    one, two = source.client(0).public, source.client(3).public
    assert one is two
    assert one is not None
    again, other = public_data(small("public=50")), public_data(small("public=50", "seed=1"))
    assert again is not None
    assert other is not None
    assert one.fingerprint == again.fingerprint != other.fingerprint
    dataset = load_dataset(small())
    assert np.array_equal(one.x, dataset.samples(one.indices))
    assert np.array_equal(one.y, dataset.targets[one.indices])


def test_a_dataset_of_its_own_leaves_the_split_as_it_is(small: Small, tmp_path: Path) -> None:
    own_file(tmp_path, "drawings")
    config = small("public=30", "public.dataset=drawings", f"data-root={tmp_path}")
    for one, two in zip(shares(config), shares(small()), strict=True):
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.test, two.test)
    public = client_data(config, 0).public
    assert public is not None
    assert (public.x.shape, public.dataset.name) == ((30, 1, 8, 8), "drawings")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["public=-1"], "public must be at least 0"),
        (["public=5000"], "public=5000 must be less than the .* training samples of digits"),
        (["public.dataset=digits"], "public.dataset needs public=N"),
        (["public=10", "public.datasets=digits"], "unknown config key 'public.datasets'"),
        (["public=10", "partition=own", "clients=1"], "with partition=own name its dataset"),
        (["public=10", "public.dataset=wide"], r"public.dataset=wide has samples of shape \(1, 8, 9\)"),
        (["public=10", "public.dataset=few"], "has .* 3 classes.* must have those of the clients' data: .* 10 classes"),
    ],
)
def test_impossible_public_data_is_refused(settings: list[str], message: str, small: Small, tmp_path: Path) -> None:
    own_file(tmp_path, "wide", (8, 9))
    own_file(tmp_path, "few", classes=3)
    with pytest.raises(ConfigError, match=message):
        client_data(small(f"data-root={tmp_path}", *settings), 0)


@pytest.mark.parametrize("name", ["nope", "wide"])
def test_another_dataset_is_checked_before_any_client_is_asked(name: str, small: Small, tmp_path: Path) -> None:
    own_file(tmp_path, "wide", (8, 9))
    told = {
        "nope": "^public data: unknown dataset 'nope'. Choices: .*digits",
        "wide": "^public.dataset=wide has samples",
    }
    with pytest.raises(ConfigError, match=told[name]):
        shares(small(f"data-root={tmp_path}", "public=10", f"public.dataset={name}"))


def test_who_has_no_public_data_says_so(small: Small) -> None:
    task = TorchTask(small(), client_data(small(), 0), 10)
    with pytest.raises(ConfigError, match=r"this client has no public data. It has: train, test"):
        task.samples("public")


def test_a_run_that_does_not_use_it_is_bitwise_as_without(
    small: Small, finished: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    own_file(tmp_path, "drawings")
    with_it = finished(small("public=30", "public.dataset=drawings", f"data-root={tmp_path}"), name="with")
    assert with_it["weights_sha256"] == finished(small(), name="without")["weights_sha256"]


def test_a_task_evaluates_and_trains_on_it_and_clients_share_one_copy(small: Small) -> None:
    config = small("public=50", "batches=in-order")
    source = ClientDataSource(config)
    tasks = [TorchTask(config, source.client(client), 10) for client in (0, 1)]
    assert tasks[0].samples("public") is tasks[1].samples("public")
    task, public = tasks[0], source.client(0).public
    assert public is not None
    output = task.outputs(task.initial(), on="public")
    assert output.shape == (50, 10)
    metrics = task.evaluate(task.initial(), on="public")
    assert metrics is not None
    assert metrics["accuracy"] == np.mean(output.argmax(1) == public.y)
    targets = np.eye(10, dtype=np.float32)[public.y]
    rng = np.random.default_rng
    plain, soft = (
        task.fit(task.initial(), rng(0), samples=samples, batch_size=20, epochs=2, lr=0.1)
        for samples in (task.samples("public"), task.samples("public").with_targets(targets))
    )
    assert plain.steps == 6
    assert np.allclose(plain.weights.parameters, soft.weights.parameters, atol=1e-6)
    assert task.batches_read == 0  # its own batches in order go on as if nothing had happened


def test_nodes_with_other_public_data_are_refused(small: Small) -> None:
    clients = [Client(i, i, 5, 5, (5,), public=public) for i, public in enumerate("aab")]
    with pytest.raises(ConfigError, match="client 2 has other public samples than client 0"):
        check_clients(clients, 3)
    config = small("public=20")
    grid = Nodes(config)
    grid.configs[102] = config.replace(seed=1)
    with pytest.raises(FedsimError, match="client 2 has other public samples"):
        roll_call(grid, config)


class Judge(FedAvg):
    """Could measure its models on the server."""


JUDGE = Algorithm("judge", "measures models", NoParams, Judge, server_needs=("torch",), public=("server",))
NEEDY = replace(JUDGE, name="needy", server_needs=("torch", "no_such_package"))


def attached(config: RunConfig) -> Judge:
    server = Judge(NoParams(), config)
    server.attach(Fleet([Client(0, 0, 1, 1, (1,) * 10)], Layout(()), Weights(np.empty(0, np.float32))))
    return server


def test_a_server_measures_models_on_it(small: Small) -> None:
    config = small("public=50", "model=mlp")
    task = TorchTask(config, client_data(config, 0), 10)
    server, zeros = attached(config), Weights(np.zeros(task.layout.size, np.float32))
    found = server.public_test(zeros)
    assert found["entropy"] == pytest.approx(np.log(10))  # all classes alike
    assert found["loss"] == pytest.approx(np.log(10), rel=1e-6)
    assert server.public_test(task.initial()) == {
        **(task.evaluate(task.initial(), on="public") or {}),
        "entropy": pytest.approx(2.28, abs=0.03),
    }
    with pytest.raises(ConfigError, match="set public=N"):
        _ = attached(small()).public_test


def test_an_algorithm_says_what_its_server_needs(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("judge", "needy"):
        monkeypatch.setitem(registry.providers("algorithm"), name, f"tests.partitions.test_public:{name.upper()}")
    build(small("algorithm=judge", "public=50"))
    with pytest.raises(ConfigError, match="judge needs public data: set public=N"):
        build(small("algorithm=judge", "public=0"))
    with pytest.raises(ConfigError, match="unknown dataset"):  # the data must be on the server's machine
        build(small("algorithm=judge", "public=50", "dataset=nowhere"))
    with pytest.raises(ConfigError, match="the server of needy needs no_such_package: install it"):
        build(small("algorithm=needy", "public=50"))
