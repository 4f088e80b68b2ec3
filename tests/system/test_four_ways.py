"""One configuration on all four engines: in this process, on Ray, in Flower's simulation, on gRPC SuperNodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.record import read_manifest, read_summary

from .flower import Federation

CLIENTS = 3
SETTING = {"clients": CLIENTS, "rounds": 2, "partition": "dirichlet", "algorithm": "fedavg-ft"}


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inline") / "run"
    launch(setting(folder), "inline")
    return folder


def setting(folder: Path, *further: str) -> RunConfig:
    return configs.read(None, [*(f"{k}={v}" for k, v in SETTING.items()), f"out={folder}", *further])


def weights(folder: Path) -> dict[str, Any]:
    with np.load(folder / "model.npz") as file:
        return {name: file[name] for name in file.files}


def assert_same_model(folder: Path, reference: Path) -> None:
    ours, theirs = weights(folder), weights(reference)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert np.linalg.norm(ours[name] - theirs[name]) <= 1e-5 * np.linalg.norm(theirs[name]), name


def assert_same_results(folder: Path, reference: Path) -> None:
    ours, theirs = read_summary(folder), read_summary(reference)
    assert ours["accuracy"] == theirs["accuracy"]
    assert (ours["bytes_up"], ours["bytes_down"]) == (theirs["bytes_up"], theirs["bytes_down"])
    assert ours["failures"] == []


@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_is_bitwise_equal(workers: int, inline: Path, tmp_path: Path) -> None:
    launch(setting(tmp_path / "run", f"workers={workers}"), "ray")
    assert read_summary(tmp_path / "run")["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert read_manifest(tmp_path / "run")["engine"] == "ray"
    assert_same_results(tmp_path / "run", inline)


@pytest.mark.system
def test_flowers_simulation_agrees(inline: Path, tmp_path: Path) -> None:
    with Federation(tmp_path / "flower", CLIENTS, simulation=True) as federation:
        told = federation.run({**SETTING, "out": str(tmp_path / "run")})
        assert (tmp_path / "run" / "summary.json").exists(), told
    assert_same_model(tmp_path / "run", inline)
    assert_same_results(tmp_path / "run", inline)


@pytest.mark.system
def test_grpc_supernodes_agree(inline: Path, tmp_path: Path) -> None:
    with Federation(tmp_path / "flower", CLIENTS) as federation:
        told = federation.run({**SETTING, "out": str(tmp_path / "run")})
        assert (tmp_path / "run" / "summary.json").exists(), told
    assert_same_model(tmp_path / "run", inline)
    assert_same_results(tmp_path / "run", inline)
