"""A real federation of three hosts: a straggler, what nodes keep, and the commands status, logs, up and down."""

import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsim.deploy.chaos.deployment import NODES, Deployment, eventually
from fedsim.report.runs import RunResult
from fedsim.results.record import read_manifest

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_a_straggler_on_a_real_federation(deployment: Deployment, tmp_path: Path) -> None:
    """Four SuperNodes, client 0 ten seconds late: buffered(2) steps on without it, then takes its stale result."""
    run = tmp_path / "run"
    keys = ["rounds=1000", "model=mlr", "clock=wall", "eval-every=1000"]
    late = ["pace=buffered", "pace.k=2", "stragglers=periodic", "stragglers.count=1", "stragglers.unit=10"]
    with deployment.running(run, *keys, *late) as process:
        there = deployment.server_folder(run)
        eventually(lambda: any(job.client == 0 for job in RunResult.load(there).jobs), 120, "the straggler's result")
        process.send_signal(signal.SIGINT)
    straggler = next(job for job in RunResult.load(run).jobs if job.client == 0)
    assert straggler.reason == "", "its result was taken"
    assert straggler.arrived - straggler.sent >= 10.0
    meanwhile = [moment for moment in RunResult.load(run).steps if straggler.sent < moment < straggler.arrived]
    assert len(meanwhile) >= 3
    assert straggler.staleness == len(meanwhile)


def test_every_node_has_its_personal_model_as_a_file(deployment: Deployment, tmp_path: Path) -> None:
    deployment.run(tmp_path / "run", "algorithm=local", "rounds=2")
    identity = read_manifest(tmp_path / "run")["run"]
    assert read_manifest(tmp_path / "run")["config"]["nodes"] == "ward-0,ward-1,ward-2,ward-3"
    for number in range(NODES):
        folder = deployment.home(f"ward-{number}") / "state" / identity
        tensors = load_file(folder / f"client-{number:04d}.safetensors")
        assert tensors
        assert all(np.isfinite(values).all() for values in tensors.values())
        assert "local" in (folder / f"client-{number:04d}.md").read_text()


def test_status_tells_nodes_runs_and_traffic(deployment: Deployment, tmp_path: Path) -> None:
    deployment.run(tmp_path / "run", "rounds=1")
    found = deployment.status()
    assert found["healthy"]
    assert [node["status"] for node in found["nodes"]] == ["online"] * NODES
    assert all(0 < time.time() - node["online-since"] < 3600 for node in found["nodes"])
    assert all(-5 < time.time() - node["last-seen"] < 120 for node in found["nodes"])
    assert found["current"] == []
    assert found["runs"][-1]["status"].startswith("finished:completed")
    assert found["runs"][-1]["bytes-in"] > 10_000
    assert "ward-3" in deployment.fedsim("status")
    told = deployment.fedsim("status", "--doctor")
    assert "problem" not in told


def test_up_again_changes_nothing(deployment: Deployment) -> None:
    before = deployment.process("server", "superlink"), deployment.process("ward-2", "supernode")
    assert deployment.fedsim("up").count("already running") == NODES + 1
    assert before == (deployment.process("server", "superlink"), deployment.process("ward-2", "supernode"))


def test_a_run_for_another_number_of_clients_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    done = deployment.attempt("run", "--out", str(tmp_path / "run"), "--set", "clients=7")
    assert done.returncode == 2
    assert "the federation has 4 nodes" in done.stderr


def test_the_reason_of_a_failed_run_is_one_line(deployment: Deployment, tmp_path: Path) -> None:
    done = deployment.attempt("run", "--out", str(tmp_path / "run"), "--set", "partition=own")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "partition=own is for data that each client brings" in line


def test_logs_show_one_machine(deployment: Deployment) -> None:
    assert "Starting Flower SuperNode" in deployment.fedsim("logs", "ward-1", "--lines", "40000")
    assert "Starting Flower SuperLink" in deployment.fedsim("logs", "--lines", "40000")
    assert "Choices: server, ward-0, ward-1" in deployment.attempt("logs", "ward-9").stderr


def test_down_leaves_nothing_behind_and_up_brings_it_back(deployment: Deployment, tmp_path: Path) -> None:
    with deployment.running(tmp_path / "run", "rounds=1000", "model=mlr") as process:
        told = deployment.fedsim("down")
    assert "is stopped; `fedsim deploy run --resume RUN` goes on with it later" in told
    assert told.count(": stopped") == NODES + 1
    assert process.returncode == 1  # `deploy run` reports that its run was stopped
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(deployment.folder) not in listed
    assert not [place for place in Path("/proc").glob("[0-9]*/cwd") if str(deployment.folder) in _target(place)]
    assert deployment.fedsim("down").count("was not running") == NODES + 1
    stopped = deployment.attempt("status", "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["server"]["processes"] == "not running"
    deployment.fedsim("up")
    assert deployment.status()["healthy"]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # the process has ended meanwhile
