"""A federation under test: three hosts, a SuperLink with TLS and node authentication, four SuperNodes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.federation import Federation
from deploy.inventory import read
from fedsim import config as configs
from fedsim.engine.launch import launch
from fedsim.record import read_events

from .flower import BIN, free_port
from .hosts import TestHost

NODES = 4
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@dataclass
class Site:
    """Everything is done with `fedsim deploy`, as a user would."""

    folder: Path
    hosts: list[TestHost]
    fleet_port: int
    control_port: int

    def fedsim(self, *arguments: str, timeout: float = 400) -> str:
        """A command that must succeed; returns what it said."""
        done = self.attempt(*arguments, timeout=timeout)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def attempt(self, *arguments: str, timeout: float = 400) -> "subprocess.CompletedProcess[str]":
        command = [str(BIN / "fedsim"), "deploy", *arguments, "--dir", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def run(self, out: Path, *settings: str) -> str:
        return self.fedsim("run", "--out", str(out), *(f"--set={setting}" for setting in settings))

    @contextmanager
    def running(self, out: Path, *settings: str) -> Iterator["subprocess.Popen[str]"]:
        """A run that has made its first steps; leaving waits for its end."""
        command = [str(BIN / "fedsim"), "deploy", "run", "--dir", str(self.folder), "--out", str(out)]
        command += [f"--set={setting}" for setting in settings]
        with (out.parent / "run.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, text=True, start_new_session=True)
            try:
                eventually(lambda: self.steps(out) >= 2, 180, "the first steps")
                yield process
                process.wait(timeout=400)
            finally:
                process.kill()
                process.wait()

    def events(self, out: Path, kind: str) -> list[dict[str, Any]]:
        """Of a run, as the server has them."""
        return [event for event in read_events(self.place(out)) if event["kind"] == kind]

    def place(self, out: Path) -> Path:
        """Where the server keeps this run."""
        return Path(Federation(read(self.folder / "federation.toml")).place_of(out))

    def steps(self, out: Path) -> int:
        return len(self.events(out, "step"))

    def home(self, name: str) -> Path:
        return self.folder / "homes" / name

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.attempt("status", "--json").stdout)
        return found

    def process(self, name: str, what: str) -> int:
        """The number of the process of this name that the agent of a home started last."""
        lines = (self.home(name) / "agent.log").read_text().splitlines()
        return int([line for line in lines if f"{what} started, process" in line][-1].split()[-1])

    def logs(self) -> str:
        found = sorted(self.folder.glob("homes/*/*.log"))
        return "\n".join(f"--- {path.parent.name}/{path.name}\n{path.read_text()[-1500:]}" for path in found)

    def inventory(self) -> str:
        """The server on the first host, two nodes on each of the others."""
        server, *others = self.hosts
        text = f'name = "wards"\n[server]\nhost = "{server.address}"\nvia = "{server.via}"\n'
        text += f"fleet-port = {self.fleet_port}\ncontrol-port = {self.control_port}\n"
        for number in range(NODES):
            via = others[number // 2].via
            text += f'[[node]]\nname = "ward-{number}"\nvia = "{via}"\nport = {free_port()}\n'
        return text


@contextmanager
def process(command: list[str], folder: Path, log: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of Flower's own programs, ended with everything it started."""
    environment: Mapping[str, str] = {
        **os.environ,
        **QUIET,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "FLWR_HOME": str(folder),
    }
    with (folder / log).open("wb") as file:
        started = subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, env=environment, start_new_session=True
        )
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def eventually(holds: Callable[[], bool], patience: float, what: str) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {patience} s"
        time.sleep(0.2)


def inline(folder: Path, *settings: str) -> Path:
    """The same run in this process."""
    launch(configs.read(None, [f"clients={NODES}", *settings, f"out={folder}"]), "inline")
    return folder
