"""Real Flower processes for the system tests: a SuperLink, gRPC SuperNodes, and `flwr run` against them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
T = TypeVar("T")
PATIENCE = 60  # seconds for a process to come up


class Federation:
    """A SuperLink and its SuperNodes on loopback; leaving the context stops the process groups it started.

    `durable`: the SuperLink keeps a database and has its SuperExec apart, so that either may be killed and started again;
    nodes keep their clients' state below `home/state`. `further`: node-config of each node besides its number.
    """

    def __init__(
        self,
        home: Path,
        nodes: int,
        simulation: bool = False,
        durable: bool = False,
        further: Sequence[str] = (),
    ) -> None:
        self.home, self.nodes, self.simulation, self.durable = home, nodes, simulation, durable
        self.further = further or [""] * nodes
        self._processes: list[subprocess.Popen[bytes]] = []
        self.latest: dict[str, subprocess.Popen[bytes]] = {}  # by name

    def __enter__(self) -> "Federation":
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, self.fleet_port = free_port(), free_port()
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.start_link()
        if self.durable:
            self.start_executor()
        if not self.simulation:
            for number in range(self.nodes):
                self.start_node(number)
        return self

    def start_link(self) -> "subprocess.Popen[bytes]":
        link = ["flower-superlink", "--insecure", "--port", str(self.port)]
        fleet = ["--simulation"] if self.simulation else ["--fleet-api-address", f"127.0.0.1:{self.fleet_port}"]
        apart = ["--database", str(self.home / "link.db"), "--isolation", "process"] if self.durable else []
        process = self.spawn("superlink", [*link, *fleet, *apart])
        await_port(self.port)
        if not self.simulation:
            await_port(self.fleet_port)
        return process

    def start_executor(self) -> "subprocess.Popen[bytes]":
        """What starts ServerApps; they belong to its process group."""
        command = ["flower-superexec", "--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}"]
        return self.spawn("superexec", command)

    def start_node(self, number: int) -> "subprocess.Popen[bytes]":
        config = f"partition-id={number} num-partitions={self.nodes} {self.further[number]}".strip()
        config += f" state-dir='{self.home / 'state' / str(number)}'" if self.durable else ""
        address = ["--superlink", f"127.0.0.1:{self.fleet_port}", "--port", str(free_port())]
        command = ["flower-supernode", "--insecure", *address, "--node-config", config]
        return self.spawn(f"supernode-{number}", command)

    def spawn(self, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )
        self._processes.append(process)
        self.latest[name] = process
        return process

    def kill(self, name: str) -> None:
        """As a power cut would end it, with everything it started."""
        stop_group(self.latest[name], signal.SIGKILL)

    def run(self, config: Mapping[str, object], timeout: float = 280) -> str:
        """`flwr run` on the project itself, to its end; returns what it streamed."""
        process = self.start_run(config)
        try:
            process.wait(timeout)
        finally:
            stop_group(process, signal.SIGKILL)
        return self.logs()

    def start_run(self, config: Mapping[str, object]) -> "subprocess.Popen[bytes]":
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ["flwr", "run", str(ROOT), "test", "--run-config", pairs, "--stream"]
        if self.simulation:
            command += ["--federation-config", f"num-supernodes={self.nodes} client-resources-num-cpus=1"]
        return self.spawn("run", command)

    def server_log(self, until: str) -> str:
        """What the last run's ServerApp told the SuperLink, once this is part of it."""
        run = re.findall(r"Successfully started run (\d+)", (self.home / "run.log").read_text())[-1]
        command = [str(BIN / "flwr"), "log", run, "test", "--show"]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout if until in done.stdout else ""

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.home.glob("*.log")))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                stop_group(process, sign)


def stop_group(process: "subprocess.Popen[bytes]", sign: signal.Signals) -> None:
    """Ends a process with everything it started; Flower leaves a child behind otherwise."""
    try:
        os.killpg(process.pid, sign)
        process.wait(timeout=10)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def until(condition: Callable[[], T], told: Callable[[], str] = lambda: "", patience: float = 240) -> T:
    """What a condition becomes as soon as it holds; it must within so many seconds."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen within {patience:.0f} s\n{told()}")
        time.sleep(0.05)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")
