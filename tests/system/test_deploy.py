"""A real federation on three hosts: runs, and what an operator sees. The hosts are network namespaces where possible."""

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsim.checkpoint import newest
from fedsim.record import read_events, read_manifest, read_summary
from strategies.spfl import State

from .site import NODES, Site, inline

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def test_spfl_agrees_with_the_inline_engine(site: Site, tmp_path: Path) -> None:
    settings = ("algorithm=spfl", "spfl.gamma=2", "rounds=3", "partition=dirichlet")
    assert "after round 3/3" in site.run(tmp_path / "real", *settings)
    here, there = (newest(folder, State) for folder in (inline(tmp_path / "inline", *settings), tmp_path / "real"))
    assert here is not None
    assert there is not None
    arrays = {name: value for name, value in vars(here.state).items() if isinstance(value, np.ndarray)}
    assert arrays
    for name, values in arrays.items():
        assert np.allclose(values, vars(there.state)[name], rtol=0, atol=1e-5), name
    assert read_summary(tmp_path / "real")["failures"] == []


def test_plga_finishes_with_stragglers_in_virtual_time(site: Site, tmp_path: Path) -> None:
    settings = ("algorithm=plga", "rounds=4", "pace=window", "stragglers=periodic", "stragglers.count=2")
    site.run(tmp_path / "real", *settings)
    assert [e["round"] for e in read_events(tmp_path / "real") if e["kind"] == "step"] == [1, 2, 3, 4]
    assert read_summary(tmp_path / "real")["accuracy"]["global"]["final"] > 0.3


def test_every_node_has_its_personal_model_as_a_file(site: Site, tmp_path: Path) -> None:
    site.run(tmp_path / "run", "algorithm=local", "rounds=2")
    identity = read_manifest(tmp_path / "run")["run"]
    for number in range(NODES):
        folder = site.home(f"ward-{number}") / "state" / identity
        tensors = load_file(folder / f"client-{number:04d}.safetensors")
        assert tensors
        assert all(np.isfinite(values).all() for values in tensors.values())
        assert "local" in (folder / f"client-{number:04d}.md").read_text()


def test_status_tells_nodes_runs_and_traffic(site: Site, tmp_path: Path) -> None:
    site.run(tmp_path / "run", "rounds=1")
    found = site.status()
    assert found["healthy"]
    assert [node["status"] for node in found["nodes"]] == ["online"] * NODES
    assert all(0 < time.time() - node["online-since"] < 3600 for node in found["nodes"])
    assert all(-5 < time.time() - node["last-seen"] < 120 for node in found["nodes"])
    assert found["current"] == []
    assert found["runs"][-1]["status"].startswith("finished:completed")
    assert found["runs"][-1]["bytes-in"] > 10_000
    assert "ward-3" in site.fedsim("status")
    told = site.fedsim("status", "--doctor")
    assert "problem" not in told


def test_up_again_changes_nothing(site: Site) -> None:
    before = site.process("server", "superlink"), site.process("ward-2", "supernode")
    assert site.fedsim("up").count("already running") == NODES + 1
    assert before == (site.process("server", "superlink"), site.process("ward-2", "supernode"))


def test_a_run_for_another_number_of_clients_is_refused(site: Site, tmp_path: Path) -> None:
    done = site.attempt("run", "--out", str(tmp_path / "run"), "--set", "clients=7")
    assert done.returncode == 2
    assert "the federation has 4 nodes" in done.stderr


def test_a_run_that_cannot_work_says_why_in_a_line(site: Site, tmp_path: Path) -> None:
    done = site.attempt("run", "--out", str(tmp_path / "run"), "--set", "partition=own")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "partition=own is for data that each client brings" in line


def test_logs_are_of_one_machine(site: Site) -> None:
    assert "Starting Flower SuperNode" in site.fedsim("logs", "ward-1", "--lines", "40000")
    assert "Starting Flower SuperLink" in site.fedsim("logs", "--lines", "40000")
    assert "Choices: server, ward-0, ward-1" in site.attempt("logs", "ward-9").stderr


def test_down_leaves_nothing_behind_and_up_brings_it_back(site: Site, tmp_path: Path) -> None:
    with site.running(tmp_path / "run", "rounds=1000", "model=mlr") as process:
        told = site.fedsim("down")
    assert "is stopped; `fedsim deploy run --resume RUN` goes on with it later" in told
    assert told.count(": stopped") == NODES + 1
    assert process.returncode == 1  # whoever waited for the run was told
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(site.folder) not in listed
    assert not [place for place in Path("/proc").glob("[0-9]*/cwd") if str(site.folder) in _target(place)]
    assert site.fedsim("down").count("was not running") == NODES + 1
    stopped = site.attempt("status", "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["server"]["processes"] == "not running"
    site.fedsim("up")
    assert site.status()["healthy"]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # it ended meanwhile
