"""A federation that `fedsim deploy` started: three hosts, a SuperLink with TLS and node authentication, three SuperNodes."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import config as configs
from fedsim.deploy.federation import Federation
from fedsim.deploy.inventory import read
from fedsim.engine.launch import launch
from fedsim.results.record import read_events
from tests.system_tools import BIN

from .flower import free_port, stop
from .hosts import TestHost

NODES = 3


@dataclass
class Deployment:
    """Operated with the command `fedsim deploy`, as a user would."""

    folder: Path
    hosts: list[TestHost]
    fleet_port: int
    control_port: int

    def fedsim(self, *arguments: str, timeout: float = 400) -> str:
        """Runs `fedsim deploy`, which must succeed; returns its output."""
        done = self.attempt(*arguments, timeout=timeout)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def attempt(self, *arguments: str, timeout: float = 400) -> "subprocess.CompletedProcess[str]":
        """Runs `fedsim deploy`, which may fail."""
        return subprocess.run(self._command(*arguments), capture_output=True, text=True, timeout=timeout, check=False)

    def run(self, out: Path, *settings: str) -> str:
        return self.fedsim("run", "--out", str(out), *(f"--set={setting}" for setting in settings))

    @contextmanager
    def running(self, out: Path, *settings: str) -> Iterator["subprocess.Popen[str]"]:
        """A run that has made its first two steps; leaving the context waits until it ends. Its output is in run.log."""
        command = self._command("run", "--out", str(out), *(f"--set={setting}" for setting in settings))
        with (out.parent / "run.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
            try:
                eventually(lambda: self.steps(out) >= 2, 180, "the first steps")
                yield process
                process.wait(timeout=400)
            finally:
                process.kill()
                process.wait()

    def _command(self, *arguments: str) -> list[str]:
        return [str(BIN / "fedsim"), "deploy", *arguments, "--dir", str(self.folder)]

    def events(self, out: Path, kind: str) -> list[dict[str, Any]]:
        """The events of a run in the folder where the server writes them."""
        return [event for event in read_events(self.server_folder(out)) if event["kind"] == kind]

    def server_folder(self, out: Path) -> Path:
        """Where the server keeps the run whose results go to `out`."""
        return Path(Federation(read(self.folder / "federation.toml")).run_folder(out))

    def steps(self, out: Path) -> int:
        return len(self.events(out, "step"))

    def home(self, name: str) -> Path:
        """The home folder of a machine."""
        return self.folder / "homes" / name

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.attempt("status", "--json").stdout)
        return found

    def process(self, name: str, program: str) -> int:
        """The id of the process of this program that the agent of a machine started last."""
        lines = (self.home(name) / "agent.log").read_text().splitlines()
        return int([line for line in lines if f"{program} started, process" in line][-1].split()[-1])

    def logs(self) -> str:
        found = sorted(self.folder.glob("homes/*/*.log"))
        return "\n".join(f"--- {path.parent.name}/{path.name}\n{path.read_text()[-1500:]}" for path in found)

    def inventory(self) -> str:
        """The server on the first host, two nodes on the second, one on the third."""
        server, *others = self.hosts
        text = f'name = "wards"\n[server]\nhost = "{server.address}"\nvia = "{server.via}"\n'
        text += f"fleet-port = {self.fleet_port}\ncontrol-port = {self.control_port}\n"
        for number in range(NODES):
            via = others[number // 2].via
            text += f'[[node]]\nname = "ward-{number}"\nvia = "{via}"\nport = {free_port()}\n'
        return text


@contextmanager
def process(command: list[str], folder: Path, log: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of Flower's programs; leaving the context ends it with everything it started."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder)}
    environment = {**os.environ, **quiet, "PATH": f"{BIN}:{os.environ['PATH']}"}
    with (folder / log).open("wb") as file:
        started = subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, env=environment, start_new_session=True
        )
        try:
            yield started
        finally:
            stop(started)


def eventually(holds: Callable[[], bool], patience: float, what: str) -> None:
    """Returns once `holds()` is true; fails after so many seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {patience} s"
        time.sleep(0.2)


def inline(folder: Path, *settings: str) -> Path:
    """The same run in this process."""
    launch(configs.read(None, [f"clients={NODES}", *settings, f"out={folder}"]), "inline")
    return folder
