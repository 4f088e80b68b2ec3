"""Real Flower processes for the system tests: a SuperLink, gRPC SuperNodes, and `flwr run` against them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
PATIENCE = 60  # seconds for a process to come up


class Federation:
    """A SuperLink and its SuperNodes on loopback; leaving the context stops the process groups it started.

    `further`: node-config of each node besides its number.
    """

    def __init__(self, home: Path, nodes: int, simulation: bool = False, further: Sequence[str] = ()) -> None:
        self.home, self.nodes, self.simulation = home, nodes, simulation
        self.further = further or [""] * nodes
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Federation":
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, self.fleet_port = free_port(), free_port()
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        fleet = ["--simulation"] if self.simulation else ["--fleet-api-address", f"127.0.0.1:{self.fleet_port}"]
        self.spawn("superlink", ["flower-superlink", "--insecure", "--port", str(self.port), *fleet])
        await_port(self.port)
        if not self.simulation:
            await_port(self.fleet_port)
            for number in range(self.nodes):
                self._start_node(number)
        return self

    def _start_node(self, number: int) -> None:
        config = f"partition-id={number} num-partitions={self.nodes} {self.further[number]}".strip()
        address = ["--superlink", f"127.0.0.1:{self.fleet_port}", "--port", str(free_port())]
        self.spawn(f"supernode-{number}", ["flower-supernode", "--insecure", *address, "--node-config", config])

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
        return process

    def run(self, config: Mapping[str, object], timeout: float = 280) -> str:
        """`flwr run` on the project itself, to its end; returns what it streamed."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ["flwr", "run", str(ROOT), "test", "--run-config", pairs, "--stream"]
        if self.simulation:
            command += ["--federation-config", f"num-supernodes={self.nodes} client-resources-num-cpus=1"]
        process = self.spawn("run", command)
        try:
            process.wait(timeout)
        finally:
            stop_group(process, signal.SIGKILL)
        return self.logs()

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
