"""The commands of the rendered units start a server and a node, run as systemd would run them."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsim.deploy.inventory import FILE, read
from fedsim.deploy.render import render
from fedsim.deploy.setup import init

from .example import ROOT, make


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def exec_lines(unit: Path) -> dict[str, list[str]]:
    """The commands of a unit, as systemd takes them apart."""
    lines = (line.partition("=") for line in unit.read_text().splitlines() if line.startswith("Exec"))
    return {key: [w.replace("$$", "$").replace("%%", "%") for w in shlex.split(value)] for key, _, value in lines}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ended as systemd does: the whole process group, nodes first."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in reversed(started):
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
                process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


@pytest.mark.system
def test_what_the_units_say_brings_a_server_and_a_node_online(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    fleet, control, port = free_ports(3)
    whole = make(tmp_path, fleet=fleet, control=control, node=port, data="")
    text = (tmp_path / FILE).read_text().replace("192.0.2.1", "127.0.0.1").split('[[node]]\nname = "7"')[0]
    (tmp_path / FILE).write_text(text)
    list(init(tmp_path, "trial", "", 0, [], False))
    inventory = read(tmp_path / FILE)
    list(render(inventory, "systemd", tmp_path / "out"))
    homes = {"server": Path(whole.server.home), "no": Path(whole.nodes[0].home)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(name: str) -> dict[str, list[str]]:
        shutil.copytree(tmp_path / "out" / name / "home", homes[name])  # what install.sh does
        commands = exec_lines(next((tmp_path / "out" / name).glob("*.service")))
        processes.append(
            subprocess.Popen(commands["ExecStart"], cwd=homes[name], env=environment, start_new_session=True)
        )
        return commands

    def control(*command: str) -> list[Any]:
        done = subprocess.run(command, cwd=homes["server"], env=environment, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert control(*start("server")["ExecStartPost"]) == ["ready", {"registered": "no"}]
    start("no")
    deadline = time.monotonic() + 120
    while (found := control(sys.executable, "-m", "fedsim.deploy.control", "nodes"))[0]["status"] != "online":
        assert time.monotonic() < deadline, found
    assert [(node["name"], node["status"]) for node in found] == [("no", "online")]
    assert tomllib.loads((tmp_path / "out" / FILE).read_text())["server"]["home"] == whole.server.home
