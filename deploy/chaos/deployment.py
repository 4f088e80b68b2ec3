"""A federation that `fedsim deploy` started: a SuperLink with TLS and node authentication, SuperNodes on several hosts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsim.deploy.chaos.network import VirtualHost
from fedsim.deploy.federation import Federation
from fedsim.deploy.inventory import FILE, read
from fedsim.results.record import read_events

NODES = 4
NAME = "wards"  # of the federation
COMMAND = (sys.executable, "-P", "-m", "fedsim.cli", "deploy")


@dataclass
class Deployment:
    """Operated with the command `fedsim deploy`, as a user would."""

    folder: Path
    hosts: Sequence[VirtualHost]  # the server is on the first one, the nodes are on the others
    ports: Sequence[int]  # of the server for nodes and for commands, and one for each node
    environment: Mapping[str, str] = field(default_factory=dict)  # more of it for the commands, and what they start

    @property
    def fleet_port(self) -> int:
        return self.ports[0]

    def write_inventory(self) -> None:
        (self.folder / FILE).write_text(self.inventory())

    def fedsim(self, *arguments: str, timeout: float = 400) -> str:
        """Runs `fedsim deploy`, which must succeed; returns its output."""
        done = self.attempt(*arguments, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{arguments} failed: {done.stdout}\n{done.stderr}\n{self.logs()}")
        return done.stdout

    def attempt(self, *arguments: str, timeout: float = 400) -> "subprocess.CompletedProcess[str]":
        """Runs `fedsim deploy`, which may fail."""
        return subprocess.run(
            self._command(*arguments), capture_output=True, text=True, timeout=timeout, check=False, env=self._environ()
        )

    def run(self, out: Path, *settings: str) -> str:
        return self.fedsim("run", "--out", str(out), *(f"--set={setting}" for setting in settings))

    @contextmanager
    def running(self, out: Path, *settings: str) -> Iterator["subprocess.Popen[str]"]:
        """A run that has made its first two steps; leaving the context waits until it ends. Its output is in run.log."""
        command = self._command("run", "--out", str(out), *(f"--set={setting}" for setting in settings))
        with (out.parent / "run.log").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, text=True, start_new_session=True, env=self._environ()
            )
            try:
                eventually(lambda: self.steps(out) >= 2, 180, "the first steps")
                yield process
                process.wait(timeout=400)
            finally:
                process.kill()
                process.wait()

    def _command(self, *arguments: str) -> list[str]:
        return [*COMMAND, *arguments, "--dir", str(self.folder)]

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def events(self, out: Path, kind: str) -> list[dict[str, Any]]:
        """The events of a run in the folder where the server writes them."""
        return [event for event in read_events(self.server_folder(out)) if event["kind"] == kind]

    def server_folder(self, out: Path) -> Path:
        """Where the server keeps the run whose results go to `out`."""
        return Path(self.federation().run_folder(out))

    def federation(self) -> Federation:
        return Federation(read(self.folder / FILE), lambda line: None)

    def steps(self, out: Path) -> int:
        return len(self.events(out, "step"))

    @property
    def names(self) -> list[str]:
        """Of the machines."""
        return ["server", *map(node_name, range(NODES))]

    def home(self, name: str) -> Path:
        """The home folder of a machine."""
        return self.folder / "homes" / name

    def host(self, name: str) -> VirtualHost:
        """Where a machine is."""
        return self.hosts[(self.names.index(name) + 1) // 2]

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
        """The server on the first host, two nodes on each of the others."""
        server, *others = self.hosts
        text = f'name = "{NAME}"\n[server]\nhost = "{server.address}"\nvia = "{server.via}"\n'
        text += f"fleet-port = {self.ports[0]}\ncontrol-port = {self.ports[1]}\n"
        for number in range(NODES):
            via, port = others[number // 2].via, self.ports[2 + number]
            text += f'[[node]]\nname = "{node_name(number)}"\nvia = "{via}"\nport = {port}\n'
        return text


def node_name(number: int) -> str:
    return f"ward-{number}"


def children(process: int) -> list[int]:
    """The child processes of a process; none if it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def eventually(holds: Callable[[], object], patience: float, what: str) -> None:
    """Returns once `holds()` is true; raises TimeoutError after so many seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience} s")
        time.sleep(0.2)
