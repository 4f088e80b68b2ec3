"""Nodes, the SuperLink and networks that fail in the middle of a run on a real federation."""

import os
import signal
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedsim import config as configs
from fedsim.record import read_manifest, read_summary
from tests.replay import own_model

from .site import NODES, Site, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_a_killed_supernode_is_missed_named_and_comes_back_with_its_state(site: Site, tmp_path: Path) -> None:
    """Local training goes on from the client's own model, so lost state would show in the accuracy."""
    run = tmp_path / "run"

    def accuracies() -> list[float]:
        """Of the client's own model after each of its jobs."""
        return [row["local"] for step in site.events(run, "step") for row in step["clients"] if row["id"] == 1]

    def missed() -> int:
        return sum(1 not in {row["id"] for row in step["clients"]} for step in site.events(run, "step"))

    with site.running(run, "algorithm=local", "rounds=1000", "timeout=300", "checkpoint-every=100") as process:
        eventually(lambda: len(accuracies()) >= 10, 180, "ten rounds")
        os.kill(site.process("ward-1", "supernode"), signal.SIGKILL)
        eventually(lambda: missed() >= 1, 180, "a round without it")
        before = accuracies()
        eventually(lambda: len(accuracies()) > len(before), 240, "its return")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert before[0] < 0.6 < before[-1]  # or the next line would say nothing
    assert accuracies()[len(before)] > before[-1] - 0.1
    failures = [failure for step in site.events(run, "step") for failure in step["failures"]]
    assert {failure["client"] for failure in failures} == {1}
    assert "Flower error 5" in failures[0]["reason"]
    assert read_manifest(run)["config"]["algorithm"] == "local"  # what was earned is here
    eventually(lambda: not site.status()["current"], 60, "the end of the run over there")


def test_a_superlink_that_is_killed_comes_back_and_the_run_goes_on_or_resumes(site: Site, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with site.running(run, "rounds=20", "eval-every=5", "checkpoint-every=1", "timeout=120"):
        os.kill(site.process("server", "superlink"), signal.SIGKILL)
    eventually(lambda: bool(site.status()["healthy"]), 180, "everyone online again")
    if not (run / "summary.json").exists():
        site.fedsim("run", "--resume", str(run))
    assert site.steps(run) == 20
    assert read_summary(run)["accuracy"]["global"]["final"] > 0.8


def test_a_host_that_was_unplugged_for_a_while_lost_nothing(site: Site, tmp_path: Path) -> None:
    """The model of `local` never travels: it is exactly what the client's own jobs made of it, before and after."""
    if not site.hosts[1].namespace:
        pytest.skip("loopback cannot be unplugged: this machine makes no network namespaces")
    run, settings = tmp_path / "run", ("algorithm=local", "rounds=12", "eval-every=6")
    try:
        with site.running(run, *settings, "timeout=300"):
            site.hosts[1].unplug()
            time.sleep(3)  # what was under way on the other host
            before = site.steps(run)
            time.sleep(17)  # the outage itself
            assert site.steps(run) == before < 12, "nobody noticed the outage"
            site.hosts[1].plug_in()
    finally:
        site.hosts[1].plug_in()
    told = f"{(tmp_path / 'run.log').read_text()}\n{site.logs()}"
    assert (run / "summary.json").exists(), told
    failures = read_summary(run)["failures"]
    assert {failure["client"] for failure in failures} <= {0, 1}, told  # those on that host
    config, steps = configs.read(None, [f"clients={NODES}", *settings]), site.events(run, "step")
    for client in range(NODES):
        counted = {number for number, step in enumerate(steps) if client in [row["id"] for row in step["clients"]]}
        missed = {failure["round"] - 1 for failure in failures if failure["client"] == client}
        state = site.home(f"ward-{client}") / "state" / read_manifest(run)["run"]
        model = load_file(state / f"client-000{client}.safetensors")
        # A job that was missed may have been done all the same, before its answer was given up.
        histories = [counted | set(done) for n in range(len(missed) + 1) for done in combinations(missed, n)]
        assert counted | missed == set(range(12)), told
        assert any(equal(model, own_model(config, client, sorted(jobs))) for jobs in histories), told


def equal(one: Mapping[str, NDArray[Any]], two: Mapping[str, NDArray[Any]]) -> bool:
    return one.keys() == two.keys() and all(np.allclose(one[name], two[name], atol=1e-6) for name in one)
