"""Algorithms on a real federation of three hosts: the results of the inline engine, and stale results in real time."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.deploy.chaos.deployment import Deployment
from fedsim.report.runs import RunResult
from fedsim.results.checkpoint import newest
from fedsim.results.record import read_events, read_summary
from fedsim.strategies.spfl import State

from ..deployment import inline

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_spfl_agrees_with_the_inline_engine(deployment: Deployment, tmp_path: Path) -> None:
    settings = ("algorithm=spfl", "spfl.gamma=2", "rounds=3", "partition=dirichlet")
    assert "after round 3/3" in deployment.run(tmp_path / "real", *settings)
    here, there = (newest(folder, State) for folder in (inline(tmp_path / "inline", *settings), tmp_path / "real"))
    assert here is not None
    assert there is not None
    arrays = {name: value for name, value in vars(here.state).items() if isinstance(value, np.ndarray)}
    assert arrays
    for name, values in arrays.items():
        assert np.allclose(values, vars(there.state)[name], rtol=0, atol=1e-5), name
    assert read_summary(tmp_path / "real")["failures"] == []


@pytest.mark.parametrize(
    "settings",
    [
        ("algorithm=fedrep",),  # a part of the model
        ("algorithm=ditto", "server-optimizer=adam"),  # a second model, moments on the server
        ("algorithm=fedfomo",),  # the models of peers
        ("algorithm=fedcp", "model=mlp"),  # a further network
        ("algorithm=kt-pfl", "model=mlr,mlp", "public=60"),  # models of two architectures, public data
        ("algorithm=fedgen", "model=mlp"),  # training on the server
        # an attack, results that are judged on the server, its own update
        (
            "algorithm=sageflow",
            "public=60",
            "attack=backdoor",
            "attack.clients=1",
            "aggregator=zeno",
            "pace=synchronous",
        ),
    ],
    ids=lambda settings: settings[0].removeprefix("algorithm="),
)
def test_algorithms_agree_with_the_inline_engine(
    settings: tuple[str, ...], deployment: Deployment, tmp_path: Path
) -> None:
    settings = (*settings, "rounds=2", "eval-every=2", "partition=dirichlet")
    deployment.run(tmp_path / "real", *settings)
    real, here = read_summary(tmp_path / "real"), read_summary(inline(tmp_path / "inline", *settings))
    assert real["failures"] == []
    for key in ("accuracy", "bytes_up", "bytes_down"):
        assert real[key] == here[key], key


def test_plga_finishes_with_stragglers_in_virtual_time(deployment: Deployment, tmp_path: Path) -> None:
    settings = ("algorithm=plga", "rounds=4", "pace=window", "stragglers=periodic", "stragglers.count=2")
    deployment.run(tmp_path / "real", *settings)
    assert [e["round"] for e in read_events(tmp_path / "real") if e["kind"] == "step"] == [1, 2, 3, 4]
    assert read_summary(tmp_path / "real")["accuracy"]["global"]["final"] > 0.3


def test_plga_with_stale_results_of_supernodes_in_real_time(deployment: Deployment, tmp_path: Path) -> None:
    """SuperNodes that are always busy, and every result is a step: most of them are stale."""
    deployment.run(tmp_path / "run", "algorithm=plga", "rounds=8", "clock=wall", "eval-every=8", "pace=buffered")
    assert any(job.staleness for job in RunResult.load(tmp_path / "run").jobs)
    assert None not in read_summary(tmp_path / "run")["accuracy"]["global"]["per_client"]
