"""gRPC SuperNodes with data files of their own: a missing file is named, and an exported split gives the results of the
inline engine."""

from pathlib import Path

import pytest

from fedsim import config as configs
from fedsim.engine.launch import launch
from fedsim.partitions.export import export

from .flower import Federation
from .test_four_ways import assert_same_model, assert_same_results

SETTING = ["clients=2", "rounds=2", "algorithm=fedavg-ft"]


@pytest.mark.system
@pytest.mark.timeout(600)  # two runs, every message a new process
def test_supernodes_with_their_own_files(tmp_path: Path, own_folders: Path) -> None:
    """Started from a folder with packages of the user's own."""
    config = configs.read(None, [*SETTING, "partition=dirichlet", f"out={tmp_path / 'inline'}"])
    launch(config, "inline")
    silos = [tmp_path / "silos" / f"client-{client:04d}.npz" for client in range(2)]
    own = dict(pair.split("=") for pair in [*SETTING, "partition=own", "dataset=wards"])
    own = {key: int(value) if value.isdigit() else value for key, value in own.items()}
    node_configs = [f'data="{file}" device="cpu"' for file in silos]
    with Federation(tmp_path / "flower", 2, node_configs=node_configs, folder=own_folders) as federation:
        federation.run({**own, "out": str(tmp_path / "failed")})
        told = (tmp_path / "flower" / "run.log").read_text()  # what the server streams
        assert not (tmp_path / "failed" / "summary.json").exists()
        assert any(f"client {c}: {file} is not there; expected an npz file" in told for c, file in enumerate(silos))
        export(config, tmp_path / "silos", lambda done, total: None)
        told = federation.run({**own, "out": str(tmp_path / "run")})
        assert (tmp_path / "run" / "summary.json").exists(), told
    assert_same_model(tmp_path / "run", tmp_path / "inline")
    assert_same_results(tmp_path / "run", tmp_path / "inline")
