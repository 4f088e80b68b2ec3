"""Real federations in which something is killed: the server's process, a node, the SuperLink."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.contact import SILENCE
from fedsim.engine.launch import launch
from fedsim.record import read_events, read_manifest, read_summary
from tests.replay import own_model

from .flower import Federation, until
from .test_four_ways import assert_same_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]  # on a busy machine; otherwise a minute or two each
CLIENTS = 2


def steps(folder: Path) -> list[dict[str, Any]]:
    return [event for event in read_events(folder) if event["kind"] == "step"]


def config_of(setting: dict[str, object]) -> RunConfig:
    return configs.read(None, [f"{k}={v}" for k, v in setting.items()])


def inline(setting: dict[str, object], folder: Path) -> Path:
    launch(config_of(setting).replace(out=str(folder)), "inline")
    return folder


def test_a_killed_server_resumes_exactly(tmp_path: Path) -> None:
    """SCAFFOLD's control variates live on the clients: they must be those of the checkpoint, not the newest ones."""
    setting = {
        "clients": CLIENTS,
        "rounds": 5,
        "partition": "dirichlet",
        "algorithm": "scaffold",
        "checkpoint-every": 2,
    }
    folder = tmp_path / "run"
    with Federation(tmp_path / "flower", CLIENTS, durable=True) as federation:
        federation.start_run({**setting, "out": str(folder)})
        until(lambda: len(steps(folder)) >= 3, federation.logs)
        federation.kill("superexec")
        assert len(steps(folder)) < 5, "it was too fast to be killed"
        federation.start_executor()
        told = federation.run({**setting, "out": str(folder), "resume": True})
        assert (folder / "summary.json").exists(), told
    manifest, summary = read_manifest(folder), read_summary(folder)
    assert manifest["resumed"] == [2]
    assert summary["failures"] == []
    whole = inline(setting, tmp_path / "whole")
    assert_same_model(folder, whole)
    assert summary["accuracy"] == read_summary(whole)["accuracy"]
    for client in range(CLIENTS):
        kept = tmp_path / "flower" / "state" / str(client) / manifest["run"] / f"client-000{client}"
        assert {path.name for path in kept.iterdir()} == {"step-000003-0-1.npz", "step-000004-0-1.npz"}
        tensors = load_file(kept.with_suffix(".safetensors"))
        with np.load(folder / "model.npz") as model:  # everybody uses the global model
            assert tensors.keys() == set(model.files)
            assert all(np.array_equal(tensors[name], model[name]) for name in model.files)
        accuracy = summary["accuracy"]["personal"]["per_client"][client]
        assert f"| accuracy on its own tests | {accuracy:.4f} |" in kept.with_suffix(".md").read_text()


def test_a_killed_node_rejoins_with_its_state(tmp_path: Path) -> None:
    """The model of `local` never travels: it is what the client's own jobs made of it, before and after the breakdown."""
    setting = {"clients": CLIENTS, "rounds": 6, "partition": "dirichlet", "algorithm": "local", "timeout": 200}
    folder, state = tmp_path / "run", tmp_path / "flower" / "state" / "1"
    with Federation(tmp_path / "flower", CLIENTS, durable=True) as federation:
        run = federation.start_run({**setting, "out": str(folder)})
        until(lambda: len(steps(folder)) >= 1, federation.logs)
        federation.kill("supernode-1")
        survived = {int(path.name[5:11]) for path in state.glob("*/client-0001/step-*.npz")}
        federation.start_node(1)
        assert run.wait(timeout=400) == 0
        told = federation.logs()
        assert (folder / "summary.json").exists(), told
    summary, taken = read_summary(folder), [{row["id"] for row in step["clients"]} for step in steps(folder)]
    (failure,) = summary["failures"]
    assert failure["client"] == 1
    assert "Flower error 5" in failure["reason"]
    assert taken[0] == taken[-1] == {0, 1}
    assert taken[failure["round"] - 1] == {0}
    assert "client 1 is back" in told

    jobs = {number for number, who in enumerate(taken) if 1 in who} | survived
    (kept,) = state.glob("*/client-0001.safetensors")
    for name, values in own_model(config_of(setting), 1, sorted(jobs)).items():
        assert np.allclose(load_file(kept)[name], values, atol=1e-6), name


def test_the_run_goes_on_when_the_superlink_is_restarted(tmp_path: Path) -> None:
    setting = {"clients": CLIENTS, "rounds": 4, "partition": "dirichlet", "algorithm": "scaffold", "timeout": 200}
    folder = tmp_path / "run"
    with Federation(tmp_path / "flower", CLIENTS, durable=True) as federation:
        federation.start_run({**setting, "out": str(folder)})
        until(lambda: len(steps(folder)) >= 1, federation.logs)
        federation.kill("superlink")
        time.sleep(2 * SILENCE)  # so long it is away
        federation.start_link()
        until(lambda: (folder / "summary.json").exists(), federation.logs)
        told = until(lambda: federation.server_log("the SuperLink answers again"), federation.logs)
    assert "no answer from the SuperLink" in told
    assert read_summary(folder)["failures"] == []
    assert_same_model(folder, inline(setting, tmp_path / "whole"))
