"""What every registered algorithm must do, whoever wrote it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from fedsim import checkpoint as checkpoints
from fedsim import registry, server_app, wire
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.engine.launch import launch
from fedsim.fleet import roll_call
from fedsim.record import read_summary
from fedsim.vector import fingerprint
from tests.events import what_happened

ALGORITHMS = registry.names("algorithm")
SYNCHRONOUS = [name for name in ALGORITHMS if registry.find("algorithm", name).pace == "synchronous"]
Small = Callable[..., RunConfig]


class PowerCut(Exception):
    """Ends a run in the middle."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_described_and_its_parameters_have_defaults(name: str) -> None:
    algorithm = registry.find("algorithm", name)
    assert algorithm.name == name
    assert registry.describe("algorithm", name)
    algorithm.params()
    assert "(1)" in (__import__(algorithm.server.__module__, fromlist=["x"]).__doc__ or ""), "equations belong there"


SETTINGS = {
    "as made": [],
    "half of the clients": ["participation=0.5"],
    "stale results": ["pace=window", "stragglers=periodic", "stragglers.count=3"],
    "batches in order": ["batches=in-order", "local-steps=3"],
    "dropouts": ["pace=buffered", "stragglers=speed", "stragglers.dropout=0.3"],
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_resumes_as_if_it_had_never_stopped(
    name: str, setting: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(f"algorithm={name}", "rounds=6", *SETTINGS[setting])
    launch(config.replace(out=str(tmp_path / "whole")), "inline")

    save = checkpoints.save

    def save_then_stop(folder: Path, point: Any) -> None:
        save(folder, point)
        if point.step == 3:
            raise PowerCut

    monkeypatch.setattr(checkpoints, "save", save_then_stop)
    with pytest.raises(PowerCut):
        launch(config.replace(out=str(tmp_path / "cut")), "inline")
    monkeypatch.setattr(checkpoints, "save", save)
    launch(config.replace(out=str(tmp_path / "cut"), resume=True), "inline")

    whole, resumed = read_summary(tmp_path / "whole"), read_summary(tmp_path / "cut")
    for summary in (whole, resumed):
        del summary["seconds"]
    assert resumed == whole
    assert what_happened(tmp_path / "cut") == what_happened(tmp_path / "whole")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_real_seconds_give_the_weights_of_virtual_ones(
    name: str, small: Small, finished: Callable[..., dict[str, Any]]
) -> None:
    keys = (f"algorithm={name}", "pace=synchronous", "rounds=3")
    virtual, wall = (finished(small(*keys, f"clock={clock}"), name=clock) for clock in ("virtual", "wall"))
    assert wall["weights_sha256"] == virtual["weights_sha256"]
    assert wall["accuracy"] == virtual["accuracy"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_takes_results_as_they_come_on_the_wall_clock(
    name: str, small: Small, finished: Callable[..., dict[str, Any]]
) -> None:
    keys = ["clock=wall", "pace=buffered", "stragglers=periodic", "stragglers.count=2", "stragglers.unit=0.001"]
    summary = finished(small(f"algorithm={name}", "rounds=8", *keys))
    assert summary["failures"] == []
    assert None not in summary["accuracy"]["personal"]["per_client"]


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_flowers_own_loop_gives_the_same_model(name: str, small: Small, tmp_path: Path) -> None:
    config = small(f"algorithm={name}", "rounds=3", "participation=0.5")
    launch(config.replace(out=str(tmp_path / "ours")), "inline")

    grid = InlineGrid(config)
    strategy = server_app.build(config)
    start = ArrayRecord({"model": wire.encode(roll_call(grid, config).theta)})
    result = Strategy.start(strategy, grid, start, num_rounds=3)

    sha256 = fingerprint(checkpoints.arrays_of([strategy.state, grid.memories()]))
    summary = read_summary(tmp_path / "ours")
    assert sha256 == summary["weights_sha256"]
    personal = result.evaluate_metrics_clientapp[3]["personal"]
    assert personal == pytest.approx(summary["accuracy"]["personal"]["final"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_another_seed_is_another_run(name: str, small: Small, finished: Callable[..., dict[str, Any]]) -> None:
    one, two = (finished(small(f"algorithm={name}", f"seed={s}"), name=str(s))["weights_sha256"] for s in (1, 2))
    assert one != two


@pytest.mark.parametrize("name", ALGORITHMS)
def test_start_accepts_an_initial_model(name: str, small: Small) -> None:
    config = small(f"algorithm={name}", "rounds=1")
    grid = InlineGrid(config)
    theta = np.zeros_like(roll_call(grid, config).theta)
    result = server_app.build(config).start(grid, ArrayRecord({"model": wire.encode(theta)}), num_rounds=1)
    assert set(result.evaluate_metrics_clientapp) == {0, 1}
