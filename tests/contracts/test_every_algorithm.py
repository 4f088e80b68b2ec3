"""What every registered algorithm must do, also one that a plug-in registers."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import Strategy

from fedsim import registry
from fedsim.client.groups import AVERAGED_FROM
from fedsim.config import RunConfig
from fedsim.engine.inline import InlineGrid
from fedsim.engine.launch import launch
from fedsim.flower.strategy import to_record
from fedsim.results import checkpoint as checkpoints
from fedsim.results.record import read_summary
from fedsim.server import app as server_app
from fedsim.server.roll_call import roll_call
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights, fingerprint
from tests.contracts.short import PHASES
from tests.resuming import check_resuming

ALGORITHMS = registry.names("algorithm")
SYNCHRONOUS = [name for name in ALGORITHMS if registry.find("algorithm", name).pace == "synchronous"]
MODELS = {"fedbabu": "mlp"}  # it trains everything but the head, which is all of the usual mlr
TUNING = {"fedbabu": ["finetune=1"]}
Small = Callable[..., RunConfig]


def chosen(name: str) -> list[str]:
    return [f"algorithm={name}", f"model={MODELS.get(name, 'mlr')}", *TUNING.get(name, []), *PHASES]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_described_and_its_parameters_have_defaults(name: str) -> None:
    algorithm = registry.find("algorithm", name)
    assert algorithm.name == name
    assert registry.describe("algorithm", name)
    algorithm.params()
    text = import_module(algorithm.server.__module__).__doc__ or ""
    assert re.search(r"\(\d+\)[^\n]*(=|<-)", text), "numbered equations belong into the module's docstring"


SETTINGS = {
    "as made": [],
    "half of the clients": ["participation=0.5"],
    "stale results": ["pace=window", "stragglers=periodic", "stragglers.count=3"],
    "batches in order": ["batches=in-order", "local-steps=3"],
    "batch normalization": ["model=cnn-bn", "local-steps=2", "rounds=4"],
    "dropouts": ["pace=buffered", "stragglers=speed", "stragglers.dropout=0.3"],
}


PLAIN = ["model=mlp", "local-steps=2", "rounds=4"]
INSTEAD = {
    (f"fedma{form}", "batch normalization"): PLAIN for form in ("", "-growth", "-layerwise")
}  # refuse normalization


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_resumes_as_if_it_had_never_stopped(
    name: str, setting: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = INSTEAD.get((name, setting), SETTINGS[setting])
    if setting == "half of the clients" and not registry.find("algorithm", name).server.no_newcomers:
        settings = [*settings, "partition.unseen=0.25"]
    check_resuming(small(*chosen(name), "rounds=5", *settings), tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_real_seconds_give_the_weights_of_virtual_ones(
    name: str, small: Small, finished: Callable[..., dict[str, Any]]
) -> None:
    keys = (*chosen(name), "pace=synchronous", "rounds=3")
    virtual, wall = (finished(small(*keys, f"clock={clock}"), name=clock) for clock in ("virtual", "wall"))
    assert wall["weights_sha256"] == virtual["weights_sha256"]
    assert wall["accuracy"] == virtual["accuracy"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_takes_results_as_they_come_on_the_wall_clock(
    name: str, small: Small, finished: Callable[..., dict[str, Any]]
) -> None:
    keys = ["clock=wall", "pace=buffered", "stragglers=periodic", "stragglers.count=2", "stragglers.unit=0.001"]
    summary = finished(small(*chosen(name), "rounds=8", *keys))
    assert summary["failures"] == []
    assert None not in summary["accuracy"]["personal"]["per_client"]


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_flowers_own_loop_gives_the_same_model(name: str, small: Small, tmp_path: Path) -> None:
    config = small(*chosen(name), "rounds=3", "participation=0.5")
    launch(config.replace(out=str(tmp_path / "ours")), "inline")

    grid = InlineGrid(config)
    strategy = server_app.build(config)
    result = Strategy.start(strategy, grid, to_record(roll_call(grid, config).initial), num_rounds=3)

    sha256 = fingerprint(checkpoints.arrays_of([strategy.state, grid.client_states()]))
    summary = read_summary(tmp_path / "ours")
    assert sha256 == summary["weights_sha256"]
    personal = result.evaluate_metrics_clientapp[3]["personal"]
    assert personal == pytest.approx(summary["accuracy"]["personal"]["final"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_another_seed_is_another_run(name: str, small: Small, finished: Callable[..., dict[str, Any]]) -> None:
    one, two = (finished(small(*chosen(name), f"seed={s}"), name=str(s))["weights_sha256"] for s in (1, 2))
    assert one != two


@pytest.mark.parametrize("name", ALGORITHMS)
def test_start_accepts_an_initial_model(name: str, small: Small) -> None:
    config = small(*chosen(name), "rounds=1")
    grid = InlineGrid(config)
    zeros = Weights(np.zeros_like(roll_call(grid, config).initial.parameters))
    result = server_app.build(config).start(grid, to_record(zeros), num_rounds=1)
    assert set(result.evaluate_metrics_clientapp) == {0, 1}


AVERAGED = [name for name in SYNCHRONOUS if object.__new__(registry.find("algorithm", name).server).takes_means]


@pytest.mark.parametrize("name", AVERAGED)
def test_updates_of_large_cohorts_are_averaged_to_the_same_model(
    name: str, small: Small, finished: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(*chosen(name), f"clients={AVERAGED_FROM}", "partition=iid", "rounds=1", "local-steps=1")
    averaged = finished(config, name="averaged")
    monkeypatch.setattr(FedAvg, "takes_means", False)
    one_by_one = finished(config, name="one by one")
    assert averaged["failures"] == []
    losses, expected = (
        [found["final"] or 0.0 for found in summary["metrics"]["loss"].values()] for summary in (averaged, one_by_one)
    )  # None: the algorithm has no model of this kind
    assert losses == pytest.approx(expected, rel=1e-5)
