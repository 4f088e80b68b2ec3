"""Time on real engines: the same virtual order everywhere, and injected delays on the wall clock."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.record import read_summary
from fedsim.report.runs import Run
from tests.events import what_happened

from .site import Site, eventually

pytestmark = pytest.mark.system
Small = Callable[..., RunConfig]


def run(config: RunConfig, folder: Path, engine: str) -> Path:
    launch(config.replace(out=str(folder)), engine)
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_ray_has_the_same_virtual_order(workers: int, small: Small, tmp_path: Path) -> None:
    keys = ["algorithm=fedbuff", "pace=buffered", "pace.k=2", "stragglers=speed", "stragglers.dropout=0.1", "rounds=8"]
    config = small(*keys, "clients=6", f"workers={workers}")
    inline, on_ray = run(config, tmp_path / "inline", "inline"), run(config, tmp_path / "ray", "ray")
    assert read_summary(on_ray)["weights_sha256"] == read_summary(inline)["weights_sha256"]
    assert what_happened(on_ray) == what_happened(inline)


def test_delays_are_slept_on_the_wall_clock(small: Small, tmp_path: Path) -> None:
    """Client 0 is one round of 3 s late; the server steps every second with the others, and takes its stale results."""
    keys = ["clock=wall", "stragglers=periodic", "stragglers.count=1", "stragglers.unit=3", "pace=periodic"]
    work = Run.load(run(small(*keys, "rounds=24"), tmp_path / "run", "ray")).work()
    stale = [job for job in work if job.client == 0 and job.staleness]  # not those of workers that were still starting
    assert stale
    for late in stale:
        assert late.arrived - late.sent >= 3.0
        assert any(job.client != 0 and late.sent < job.arrived < late.arrived for job in work)


@pytest.mark.timeout(400)
def test_a_straggler_on_a_real_federation(site: Site, tmp_path: Path) -> None:
    """Four SuperNodes, client 0 fifteen seconds late: buffered(2) steps on without it, then takes its stale result."""
    run = tmp_path / "run"
    keys = ["rounds=1000", "model=mlr", "clock=wall", "eval-every=1000"]
    late = ["pace=buffered", "pace.k=2", "stragglers=periodic", "stragglers.count=1", "stragglers.unit=15"]
    with site.running(run, *keys, *late) as process:
        there = site.place(run)
        eventually(lambda: any(job.client == 0 for job in Run.load(there).work()), 120, "the straggler's result")
        process.send_signal(signal.SIGINT)
    straggler = next(job for job in Run.load(run).work() if job.client == 0)
    assert straggler.reason == "", "its result was taken"
    assert straggler.arrived - straggler.sent >= 15.0
    meanwhile = [moment for moment in Run.load(run).steps if straggler.sent < moment < straggler.arrived]
    assert len(meanwhile) >= 3
    assert straggler.staleness == len(meanwhile)
