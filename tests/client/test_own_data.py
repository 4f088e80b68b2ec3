"""Nodes that bring their own data and choose their device: the same ClientApp and ServerApp, on the inline engine."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.engine.launch import launch
from fedsim.errors import ConfigError, FedsimError
from fedsim.partitions.export import export
from fedsim.results.record import read_summary
from fedsim.server.app import app as server_app
from fedsim.server.roll_call import roll_call
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
NodeConfig = Callable[[int], dict[str, str]]


def silos(config: RunConfig, node_config: NodeConfig) -> Nodes:
    """Nodes in this process, each started with a node-config of its own, as a SuperNode is."""
    grid = Nodes(config)
    grid.node_config = node_config
    return grid


def run(config: RunConfig, node_config: NodeConfig, folder: Path) -> dict[str, object]:
    config = config.replace(out=str(folder))
    server_app(silos(config, node_config), Context(1, 1, {}, RecordDict(), dict(config.flat())))
    return read_summary(folder)


@pytest.mark.parametrize("settings", [["algorithm=fedavg"], ["algorithm=spfl", "partition=feature-shift"]])
def test_silos_on_files_train_like_the_simulated_partition(settings: list[str], small: Small, tmp_path: Path) -> None:
    config = small(*settings)
    launch(config.replace(out=str(tmp_path / "simulated")), "inline")
    export(config, tmp_path / "silos", lambda done, total: None)
    own = config.replace(partition="own", dataset="wards", sections={})
    found = run(own, lambda c: {"data": str(tmp_path / "silos" / f"client-{c:04d}.npz")}, tmp_path / "own")
    wanted = read_summary(tmp_path / "simulated")
    assert found["accuracy"] == wanted["accuracy"]
    assert found["weights_sha256"] == wanted["weights_sha256"]


def told(config: RunConfig, node_config: dict[str, str]) -> str:
    """What a node with this node-config answers to the roll call instead of its data."""
    with pytest.raises(FedsimError) as refused:
        roll_call(silos(config.replace(clients=1), lambda _: node_config), config.replace(clients=1))
    found = re.fullmatch(r"node 100 answered with an error: ConfigError: (.*) \(Flower error 2\)", str(refused.value))
    assert found
    return found[1]


def test_a_missing_file_names_client_path_and_what_is_expected(small: Small) -> None:
    line = told(small("partition=own"), {"data": "/nowhere/silo.npz"})
    assert line.startswith("client 0: /nowhere/silo.npz is not there; expected an npz file with x_train")


def test_a_relative_path_would_depend_on_who_starts_the_process(small: Small) -> None:
    assert "client 0: the node's data=silo.npz must be an absolute path" in told(
        small("partition=own"), {"data": "silo.npz"}
    )


def test_own_data_cannot_be_split(small: Small) -> None:
    line = told(small(), {"data": "/data/silo.npz"})
    assert "(/data/silo.npz), which partition=dirichlet cannot split: run with partition=own" in line


def test_a_client_that_brings_nothing_is_refused(small: Small) -> None:
    """It would hold all of a dataset of which others may hold parts."""
    with pytest.raises(FedsimError) as refused:
        roll_call(silos(small("partition=own"), lambda _: {}), small("partition=own"))
    line = str(refused.value).partition("ConfigError: ")[2].removesuffix(" (Flower error 2)")
    assert line.partition(": ")[2] == (
        "partition=own is for data that each client brings, but dataset=digits is common to all: "
        "give its node `data`, or choose another partition"
    )


def test_one_model_needs_one_shape_of_samples(small: Small, tmp_path: Path) -> None:
    for client in range(4):
        x, y = np.zeros((6, 4, 5 + (client == 2)), np.uint8), np.arange(6) % 2
        np.savez(tmp_path / f"{client}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    grid = silos(small("partition=own"), lambda client: {"data": str(tmp_path / f"{client}.npz")})
    with pytest.raises(ConfigError, match=r"client 0 .*shape \(1, 4, 5\) but client 2 .*shape \(1, 4, 6\)"):
        roll_call(grid, grid.config)


def test_silos_need_not_hold_every_class(small: Small, tmp_path: Path) -> None:
    for client in range(4):
        x, y = np.zeros((6, 4, 5), np.uint8), np.full(6, client)
        np.savez(tmp_path / f"{client}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    summary = run(small("partition=own"), lambda client: {"data": str(tmp_path / f"{client}.npz")}, tmp_path / "run")
    assert summary["failures"] == []


def test_label_counts_of_own_data_are_told_only_if_the_node_says_so(small: Small, tmp_path: Path) -> None:
    x, y = np.zeros((6, 4, 5), np.uint8), np.array([0, 1, 1, 2, 2, 2])
    np.savez(tmp_path / "silo.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    own: dict[str, Any] = {"data": str(tmp_path / "silo.npz")}
    config = small("partition=own", "clients=1")
    for node, counts in [(own, ()), ({**own, "label-counts": True}, (1, 2, 3))]:
        (client,) = roll_call(silos(config, lambda _, node=node: node), config).clients  # type: ignore[misc]
        assert (client.labels, client.classes) == (counts, 3)


def test_the_node_chooses_its_device(small: Small) -> None:
    assert "unknown device 'tpu'" in told(small(), {"device": "tpu"})
    assert "device=cuda:99 was asked for" in told(small("device=cpu"), {"device": "cuda:99"})


def test_the_reason_of_a_failed_roll_call_is_the_nodes_own_line(small: Small) -> None:
    """As `InlineGrid` and Flower's runtime hand it over: as an error message."""
    grid = InlineGrid(small("dataset=nowhere"))
    with pytest.raises(FedsimError, match=r"^node 2 answered with an error: ConfigError: client 0: unknown dataset"):
        roll_call(grid, grid.config)
