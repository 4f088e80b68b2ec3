"""Machines reached by ssh: a real sshd on a port of loopback, started by each test with keys of its own."""

import getpass
import os
import shutil
import signal
import site as sites
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsim.deploy.chaos.deployment import children
from fedsim.results.record import read_summary
from tests.system_tools import BIN, program

from .flower import await_port, free_port

pytestmark = [pytest.mark.system, pytest.mark.needs("sshd"), pytest.mark.timeout(600)]
USER = getpass.getuser()
ROUNDS = 8
FEDSIM_DEPLOY = [str(BIN / "fedsim"), "deploy"]


@pytest.fixture
def login(tmp_path: Path) -> Iterator[str]:
    """The arguments of `ssh` with which this user logs in."""
    keys, port = tmp_path / "keys", free_port()
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(make, check=True, capture_output=True)
    shutil.copy(keys / "user.pub", keys / "authorized")
    (keys / "known").write_text(f"[127.0.0.1]:{port} {(keys / 'host.pub').read_text()}")
    (keys / "config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized\n"
        f"PidFile {keys}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 50\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where an sshd of root gives up its privileges
    with (keys / "log").open("wb") as log:
        daemon = subprocess.Popen([str(program("sshd")), "-D", "-e", "-f", str(keys / "config")], stderr=log)
        try:
            await_port(port)
            options = f"-p {port} -i {keys}/user -o UserKnownHostsFile={keys}/known -o IdentitiesOnly=yes"
            yield f"{options} {USER}@127.0.0.1"
        finally:
            daemon.terminate()
            daemon.wait()


def deploy(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*FEDSIM_DEPLOY, *arguments, "--dir", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def federation(folder: Path, login: str, python: str, nodes: int = 2) -> None:
    where = f'ssh = "{login}"\npython = "{python}"\n'
    text = f'[server]\n{where}home = "{folder}/far/server"\nfleet-port = {free_port()}\ncontrol-port = {free_port()}\n'
    for number in range(nodes):
        name = f"ward-{number}"
        text += f'[[node]]\nname = "{name}"\n{where}home = "{folder}/far/{name}"\nport = {free_port()}\n'
    (folder / "federation.toml").write_text(text)
    assert deploy(folder, "init").returncode == 0


def environment(folder: Path) -> Path:
    """A virtual environment that finds what fedsim needs in this one, and pip; returns the folder of its own packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text("\n".join(sites.getsitepackages()))
    for script in [*BIN.glob("flower-*"), *BIN.glob("flwr*")]:
        _, rest = script.read_text().split("\n", 1)
        (folder / "bin" / script.name).write_text(f"#!{folder}/bin/python\n{rest}")
        (folder / "bin" / script.name).chmod(0o755)
    return packages


def run_whose_connection_drops(folder: Path) -> None:
    """A run on the federation; after its first round every ssh connection is cut off."""
    command = [*FEDSIM_DEPLOY, "run", "--out", str(folder / "run"), "--set", f"rounds={ROUNDS}", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        next(line for line in run.stdout if "after round 1/" in line)
        for session in children(int((folder / "keys" / "pid").read_text())):
            os.kill(session, signal.SIGKILL)
        told = run.stdout.read()
    assert run.returncode == 0, told
    rounds = [line.split("after round ")[1].split("/")[0] for line in told.splitlines() if "after round " in line]
    assert rounds == [str(number) for number in range(2, ROUNDS + 1)], "nothing is told twice, or left out"


def test_a_federation_by_ssh_from_up_to_purge(login: str, tmp_path: Path) -> None:
    """`up --install` copies a wheel of fedsim there: the machine's environment has only what fedsim depends on."""
    packages = environment(tmp_path / "venv")
    federation(tmp_path, login, str(tmp_path / "venv"))
    try:
        up = deploy(tmp_path, "up", "--install")
        assert up.returncode == 0, up.stderr
        assert "installed fedsim_flower-" in up.stdout
        assert list(packages.glob("fedsim_flower-*.dist-info"))
        run_whose_connection_drops(tmp_path)
        assert read_summary(tmp_path / "run")["rounds"] == ROUNDS
    finally:
        down = deploy(tmp_path, "down", "--purge")
    assert down.returncode == 0, down.stderr
    assert not list((tmp_path / "far").iterdir())


def test_a_wrong_port_and_a_wrong_key_are_named(login: str, tmp_path: Path) -> None:
    federation(tmp_path, f"-p {free_port()} {USER}@127.0.0.1", sys.executable)
    refused = deploy(tmp_path, "up")
    assert refused.returncode == 1
    assert "server: ssh" in refused.stderr
    assert "Connection refused" in refused.stderr
    Path(login.split()[3] + ".pub").with_name("authorized").write_text("")
    federation(tmp_path, login, sys.executable)
    assert "Permission denied" in deploy(tmp_path, "up").stderr
