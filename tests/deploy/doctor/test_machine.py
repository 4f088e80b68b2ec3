"""The machine itself: its clock, disks, devices, packages, and whether Ray starts."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.deploy import doctor
from fedsim.deploy.checks import machine, software
from fedsim.deploy.finding import Finding

from ...system.flower import free_port
from .home_folder import change, the_problem


def test_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pets" / "train").mkdir(parents=True)
    (tmp_path / "wards.npz").touch()
    port = free_port()
    assert main(["doctor", "--data-root", str(tmp_path), "--port", str(port)]) == 0
    told = capsys.readouterr().out
    assert "wards from wards.npz, pets from pets" in told
    assert f"port {port} is free" in told
    for package in ("flwr", "torch", "ray", "grpcio", "numpy"):
        assert f"ok       {package}: {version(package)}" in told


@pytest.mark.parametrize(("ahead", "told"), [(6, "6.0 s ahead of"), (-7, "7.0 s behind")])
def test_a_skewed_clock(node: Path, ahead: float, told: str) -> None:
    line = the_problem(doctor.check_home(node, reference=1000.0, here=1000.0 + ahead))
    assert told in line
    assert "more than 5 s ahead or 305 s behind" in line


def test_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert machine.disk("state", tmp_path / "not" / "yet" / "there").level == "ok"
    refused = machine.disk("state", tmp_path / "file" / "state")
    assert (refused.level, f"{tmp_path / 'file' / 'state'} cannot be written" in refused.message) == ("problem", True)
    monkeypatch.setattr(machine, "LITTLE", float("inf"))
    assert machine.disk("state", tmp_path).level == "warning"
    monkeypatch.setattr(machine, "TOO_LITTLE", float("inf"))
    assert machine.disk("state", tmp_path).level == "problem"


def test_a_device_that_is_not_there(node: Path) -> None:
    config = json.loads((node / "node.json").read_text())["config"]
    change(node, config={**config, "device": "cuda:99"})
    assert "cuda:99 was asked for" in the_problem(doctor.check_home(node))
    change(node, config={**config, "device": "tpu"})
    assert "unknown device 'tpu'" in the_problem(doctor.check_home(node))


def test_gpus_that_torch_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    listed = "".join(f"GPU {i}: Test\n" for i in range(99))
    tool.write_text(f"#!/bin/sh\nif [ \"$1\" = -L ]; then printf '{listed}'; else echo 'CUDA Version: 1.0'; fi\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = machine.gpus()
    assert found.level == "warning"
    assert "nvidia-smi sees 99, torch" in found.message


@pytest.mark.parametrize(
    ("built", "count", "newest", "hidden", "told"),
    [
        ("13.0", 0, "", None, "lists none either"),
        (None, 1, "12.4", None, "built without CUDA"),
        ("13.0", 1, "12.4", "0", "the driver runs CUDA 12.4 at most, torch is built for 13.0"),
        ("9.2", 2, "12.4", "1", "CUDA_VISIBLE_DEVICES=1 hides the others"),
        ("9.2", 1, "12.4", None, "does not answer"),
    ],
)
def test_why_torch_sees_no_gpu(built: str | None, count: int, newest: str, hidden: str | None, told: str) -> None:
    assert told in machine._why_hidden(built, count, newest, hidden)[0]


def test_packages_that_do_not_fit() -> None:
    need = software.Requirement("numpy>=99")
    assert f"{version('numpy')} is installed, but fedsim needs numpy >=99" in str(software._satisfies(need, "fedsim"))


@pytest.mark.system
def test_ray_starts() -> None:
    assert machine.ray() == Finding("ok", "ray", "ray starts")
