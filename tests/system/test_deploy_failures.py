"""Nodes, the SuperLink and networks that fail in the middle of a run on a real federation."""

import os
import signal
import time
from pathlib import Path

import pytest

from fedsim.record import read_manifest, read_summary

from .site import Site, eventually, inline

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


def test_a_run_goes_on_after_a_host_was_unplugged_for_a_while(site: Site, tmp_path: Path) -> None:
    """Flower delivers a message once: what was on the wire then is given up after `timeout`, and the run goes on."""
    if not site.hosts[1].namespace:
        pytest.skip("loopback cannot be unplugged: this machine makes no network namespaces")
    run, settings = tmp_path / "run", ("algorithm=local", "rounds=12", "eval-every=6")
    try:
        with site.running(run, *settings, "timeout=90"):
            site.hosts[1].unplug()
            time.sleep(20)  # the outage itself
            site.hosts[1].plug_in()
    finally:
        site.hosts[1].plug_in()
    told = f"{(tmp_path / 'run.log').read_text()}\n{site.logs()}"
    assert (run / "summary.json").exists(), told
    summary, reference = read_summary(run), read_summary(inline(tmp_path / "inline", *settings))
    missed = {failure["client"] for failure in summary["failures"]}
    for client, expected in enumerate(reference["accuracy"]["personal"]["per_client"]):
        reached = summary["accuracy"]["personal"]["per_client"][client]
        assert reached > expected - 0.1 if client in missed else reached == expected
