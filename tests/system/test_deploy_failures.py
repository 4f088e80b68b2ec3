"""Nodes, the SuperLink and networks that fail in the middle of a run on a real federation."""

import os
import signal
import time
from pathlib import Path

import pytest

from fedsim.record import read_events, read_summary

from .site import Site, eventually, inline

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_a_killed_supernode_is_missed_named_and_comes_back_with_its_state(site: Site, tmp_path: Path) -> None:
    """Local training goes on from the client's own model, so lost state would show in the accuracy."""
    run = tmp_path / "run"
    with site.running(run, "algorithm=local", "rounds=60", "eval-every=60", "timeout=300"):
        os.kill(site.process("ward-1", "supernode"), signal.SIGKILL)
        killed = site.steps(run)
    told = f"{(tmp_path / 'run.log').read_text()}\n{site.logs()}"
    assert (run / "summary.json").exists(), told
    summary = read_summary(run)
    assert {failure["client"] for failure in summary["failures"]} == {1}, told
    parts = [{row["id"] for row in event["clients"]} for event in read_events(run) if event["kind"] == "step"]
    missed = [number for number, part in enumerate(parts) if 1 not in part]
    assert missed, "the round went on without it"
    assert missed[0] >= killed - 1
    assert 1 in parts[-1], f"it came back\n{told}"
    reference = read_summary(
        inline(tmp_path / "inline", "algorithm=local", f"rounds={60 - len(missed)}", "eval-every=60")
    )
    expected = reference["accuracy"]["personal"]["per_client"][1]
    assert summary["accuracy"]["personal"]["per_client"][1] > expected - 0.1, told


def test_a_superlink_that_is_killed_comes_back_and_the_run_goes_on(site: Site, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with site.running(run, "rounds=20", "eval-every=5", "timeout=300"):
        os.kill(site.process("server", "superlink"), signal.SIGKILL)
    told = f"{(tmp_path / 'run.log').read_text()}\n{site.logs()}"
    eventually(lambda: (run / "summary.json").exists(), 180, f"the end of the run: {told}")
    assert site.steps(run) == 20
    assert read_summary(run)["accuracy"]["global"]["final"] > 0.8
    eventually(lambda: bool(site.status()["healthy"]), 180, "everyone online again")


def test_a_host_that_is_unplugged_for_a_while_loses_nothing(site: Site, tmp_path: Path) -> None:
    if not site.hosts[1].namespace:
        pytest.skip("loopback cannot be unplugged: this machine makes no network namespaces")
    run, settings = tmp_path / "run", ("algorithm=local", "rounds=12", "eval-every=6")
    try:
        with site.running(run, *settings, "timeout=300"):
            site.hosts[1].unplug()
            time.sleep(20)  # the outage itself
            site.hosts[1].plug_in()
    finally:
        site.hosts[1].plug_in()
    told = f"{(tmp_path / 'run.log').read_text()}\n{site.logs()}"
    assert (run / "summary.json").exists(), told
    summary, reference = read_summary(run), read_summary(inline(tmp_path / "inline", *settings))
    assert summary["failures"] == [], told
    assert summary["accuracy"]["personal"]["per_client"] == reference["accuracy"]["personal"]["per_client"]
