"""The Ray engine gives bitwise the results of the inline engine, and sleeps injected delays on the wall clock."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.engine.ray_session import leave
from fedsim.report.runs import RunResult
from fedsim.results.record import read_manifest, read_summary
from tests.events import reproducible_events

from .test_four_ways import SETTING, assert_same_results, config_of

pytestmark = pytest.mark.system
Small = Callable[..., RunConfig]
SETTINGS = {
    "spfl": ["algorithm=spfl", "spfl.gamma=2", "participation=0.75", "rounds=5"],
    "plga": ["algorithm=plga", "stragglers=periodic", "stragglers.count=2", "stragglers.schedule=official", "rounds=8"],
}


@pytest.fixture(scope="module", autouse=True)
def _ray_ends() -> Iterator[None]:
    """With the last test that needs it, so that it does not idle beside all others."""
    yield
    leave()


def run(config: RunConfig, folder: Path, engine: str) -> Path:
    launch(config.replace(out=str(folder)), engine)
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_synchronous_rounds_are_bitwise_equal(workers: int, tmp_path: Path) -> None:
    config = config_of(SETTING, tmp_path, f"workers={workers}")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert read_manifest(on_ray)["engine"] == "ray"
    assert_same_results(on_ray, inline)


@pytest.mark.parametrize(("clients", "vectorize"), [(40, "off"), (130, "8")])
def test_updates_that_workers_average_are_bitwise_equal(
    clients: int, vectorize: str, small: Small, tmp_path: Path
) -> None:
    """Groups are averaged by the workers, and their means by the driver, in whatever order they arrive."""
    config = small(f"clients={clients}", "partition=iid", "batch-size=4", f"vectorize={vectorize}", "workers=2")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert_same_results(on_ray, inline)


@pytest.mark.parametrize("name", SETTINGS)
def test_personal_models_on_the_server_are_bitwise_equal(name: str, small: Small, tmp_path: Path) -> None:
    config = small(*SETTINGS[name], "batches=in-order", "local-steps=3", "workers=2")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert reproducible_events(on_ray) == reproducible_events(inline)


def test_attacks_and_robust_aggregators_are_bitwise_equal(small: Small, tmp_path: Path) -> None:
    keys = ["attack=backdoor", "attack.ratio=0.2", "attack.redraw=true", "aggregator=multi-krum", "clients=6"]
    config = small(*keys, "workers=2")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert read_summary(on_ray)["metrics"] == read_summary(inline)["metrics"]
    assert read_summary(on_ray)["groups"] == read_summary(inline)["groups"]


@pytest.mark.parametrize("workers", [1, 2])
def test_virtual_time_has_the_same_order(workers: int, small: Small, tmp_path: Path) -> None:
    keys = ["algorithm=fedbuff", "pace=buffered", "pace.k=2", "stragglers=speed", "stragglers.dropout=0.1", "rounds=8"]
    config = small(*keys, "clients=6", f"workers={workers}")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert reproducible_events(on_ray) == reproducible_events(inline)


def test_delays_are_slept_on_the_wall_clock(small: Small, tmp_path: Path) -> None:
    """Client 0 is one round of 3 s late; the server steps every second with the others, and takes its stale results."""
    keys = [
        "clock=wall",
        "stragglers=periodic",
        "stragglers.count=1",
        "stragglers.unit=3",
        "pace=periodic",
        "clients=2",
    ]
    work = RunResult.load(run(small(*keys, "rounds=24"), tmp_path / "run", "ray")).jobs
    stale = [job for job in work if job.client == 0 and job.staleness]  # not those of workers that were still starting
    assert stale
    for late in stale:
        assert late.arrived - late.sent >= 3.0
        assert any(job.client != 0 and late.sent < job.arrived < late.arrived for job in work)
