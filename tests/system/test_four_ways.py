"""Flower's simulation gives the results of the inline engine; SuperNodes: test_own_data.py; Ray: test_ray_results.py."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.files import read_npz
from fedsim.results.matrices import matrix_files
from fedsim.results.record import read_summary

from .flower import Federation

pytestmark = pytest.mark.system
CLIENTS = 2
SETTING = {"clients": CLIENTS, "rounds": 2, "partition": "dirichlet", "algorithm": "fedavg-ft"}
SPFL = {**SETTING, "algorithm": "spfl", "model": "mlr", "batch-size": 64}


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory, own_folders: Path) -> Iterator[Federation]:
    """Flower's simulation, started from a folder with packages of the user's own."""
    home = tmp_path_factory.mktemp("simulation")
    with Federation(home, CLIENTS, simulation=True, folder=own_folders) as federation:
        yield federation


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inline") / "run"
    launch(config_of(SETTING, folder), "inline")
    return folder


def config_of(setting: Mapping[str, object], folder: Path, *further: str) -> RunConfig:
    return configs.read(None, [*(f"{key}={value}" for key, value in setting.items()), f"out={folder}", *further])


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


def test_flowers_simulation_agrees(inline: Path, simulation: Federation, tmp_path: Path) -> None:
    logs = simulation.run({**SETTING, "out": str(tmp_path / "run")})
    assert (tmp_path / "run" / "summary.json").exists(), logs
    assert_same_model(tmp_path / "run", inline)
    assert_same_results(tmp_path / "run", inline)


def test_flowers_simulation_finds_the_same_similarities(simulation: Federation, tmp_path: Path) -> None:
    launch(config_of(SPFL, tmp_path / "inline"), "inline")
    logs = simulation.run({**SPFL, "out": str(tmp_path / "run")})
    assert (tmp_path / "run" / "summary.json").exists(), logs
    assert read_summary(tmp_path / "run")["accuracy"] == read_summary(tmp_path / "inline")["accuracy"]
    ours, theirs = (matrix_files(tmp_path / name) for name in ("run", "inline"))
    assert list(ours) == list(theirs) == [1]
    for name, expected in read_npz(theirs[1]).items():
        np.testing.assert_allclose(read_npz(ours[1])[name], expected, atol=1e-5)
