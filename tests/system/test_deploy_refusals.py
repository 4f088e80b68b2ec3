"""`fedsim deploy up` names every problem in one line, with the machine and the remedy, before it starts anything."""

import os
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from fedsim import distribution
from fedsim.deploy import pki
from tests.system_tools import BIN

from .flower import free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


def deploy(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(BIN / "fedsim"), "deploy", *arguments, "--dir", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def federation(folder: Path, *nodes: str, host: str = "127.0.0.1") -> None:
    text = f'[server]\nhost = "{host}"\nfleet-port = {free_port()}\ncontrol-port = {free_port()}\n'
    (folder / "federation.toml").write_text(text + "".join(f"[[node]]\n{node}\n" for node in nodes))
    assert deploy(folder, "init").returncode == 0


def lines_of(done: "subprocess.CompletedProcess[str]", name: str) -> list[str]:
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if line.startswith(f"{name}: ")]


@pytest.mark.needs("faketime")
def test_ports_data_clocks_and_certificates(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        federation(
            tmp_path,
            f'name = "taken"\nport = {port}',
            f'name = "empty"\nport = {free_port()}\ndata = "/nowhere/silo.npz"',
            f'name = "late"\nport = {free_port()}\nvia = "faketime -f +2m"',
        )
        pki.issue_server_certificate(tmp_path / "secrets", ["127.0.0.1"], timedelta(days=-2))
        done = deploy(tmp_path, "up")
    (told,) = lines_of(done, "taken")
    assert str(port) in told
    (told,) = lines_of(done, "empty")
    assert "/nowhere/silo.npz" in told
    (told,) = lines_of(done, "late")
    assert "clock" in told
    assert any("expired" in told and "--rotate" in told for told in lines_of(done, "server")), done.stderr
    assert not list(tmp_path.glob("homes/*/agent.log")), "nothing was started"


def test_other_versions(tmp_path: Path) -> None:
    metadata = tmp_path / "old" / "fedsim_flower-0.0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution.NAME}\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(metadata.parent), os.environ.get("PYTHONPATH", "")])
    federation(
        tmp_path,
        f'name = "old"\nport = {free_port()}\nvia = "env PYTHONPATH={path}"',
        f'name = "fine"\nport = {free_port()}',
    )
    done = deploy(tmp_path, "up")
    assert done.returncode == 1
    assert f"old: {distribution.NAME} 0.0.1 (here: " in done.stderr
    assert "up --install" in done.stderr
    assert "fine:" not in done.stderr


def test_a_server_that_is_elsewhere(tmp_path: Path) -> None:
    federation(tmp_path, f'name = "a"\nport = {free_port()}', host="198.51.100.200")
    try:
        done = deploy(tmp_path, "up", "--wait", "10")
    finally:
        assert deploy(tmp_path, "down").returncode == 0
    assert done.returncode == 1
    assert "a: " in done.stderr
    assert "198.51.100.200" in done.stderr


def test_keys_that_were_not_made(tmp_path: Path) -> None:
    federation(tmp_path, f'name = "a"\nport = {free_port()}')
    (tmp_path / "secrets" / "nodes" / "a.key").unlink()
    done = deploy(tmp_path, "up")
    assert done.returncode == 1
    assert "a.key is missing: run `fedsim deploy init`" in done.stderr


def test_a_machine_without_python(tmp_path: Path) -> None:
    federation(tmp_path, f'name = "a"\nport = {free_port()}\npython = "/nowhere/python"')
    done = deploy(tmp_path, "up")
    assert done.returncode == 1
    assert done.stderr.startswith("fedsim: a: ")
    assert "Set `python` of a in the inventory" in done.stderr
