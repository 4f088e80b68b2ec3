"""Personal models made on the server, stale results and batches in order: the same on every engine."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.files import read_npz
from fedsim.matrices import matrix_files
from fedsim.record import read_summary
from fedsim.report.runs import Run
from tests.events import what_happened

from .flower import Federation
from .site import Site

pytestmark = pytest.mark.system
Small = Callable[..., RunConfig]
SPFL = {"algorithm": "spfl", "partition": "dirichlet", "clients": 3, "rounds": 2}
SETTINGS = {
    "spfl": ["algorithm=spfl", "spfl.gamma=2", "participation=0.75", "rounds=5"],
    "plga": ["algorithm=plga", "stragglers=periodic", "stragglers.count=2", "stragglers.schedule=official", "rounds=8"],
}


def run(config: RunConfig, folder: Path, engine: str) -> Path:
    launch(config.replace(out=str(folder)), engine)
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_ray_is_bitwise_equal_in_virtual_time(name: str, small: Small, tmp_path: Path) -> None:
    config = small(*SETTINGS[name], "batches=in-order", "local-steps=3", "workers=2")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert what_happened(on_ray) == what_happened(inline)


def test_flowers_simulation_finds_the_same_similarities(small: Small, tmp_path: Path) -> None:
    inline = run(small(*(f"{key}={value}" for key, value in SPFL.items())), tmp_path / "inline", "inline")
    with Federation(tmp_path / "flower", 3, simulation=True) as federation:
        keys = {**SPFL, "model": "mlr", "batch-size": 64, "out": str(tmp_path / "run")}
        told = federation.run(keys)
        assert (tmp_path / "run" / "summary.json").exists(), told
    assert read_summary(tmp_path / "run")["accuracy"] == read_summary(inline)["accuracy"]
    ours, theirs = (matrix_files(folder) for folder in (tmp_path / "run", inline))
    assert list(ours) == list(theirs) == [1]
    for name, expected in read_npz(theirs[1]).items():
        np.testing.assert_allclose(read_npz(ours[1])[name], expected, atol=1e-5)


def test_plga_takes_what_comes_from_grpc_supernodes_in_real_time(site: Site, tmp_path: Path) -> None:
    """SuperNodes that are always busy, and every result is a step: most of them are stale."""
    site.run(tmp_path / "run", "algorithm=plga", "rounds=8", "clock=wall", "eval-every=8", "pace=buffered")
    assert any(job.staleness for job in Run.load(tmp_path / "run").work())
    assert None not in read_summary(tmp_path / "run")["accuracy"]["global"]["per_client"]
