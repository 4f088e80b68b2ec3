"""Real Flower processes for the system tests: a SuperLink, gRPC SuperNodes, and `flwr run` on them."""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.system_tools import BIN

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120  # seconds for a process to start
# Ports above those of Ray's workers and below those that the kernel gives to outgoing connections; each pytest-xdist worker
# has a range of its own.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = itertools.count(20_000 + WORKER % 12 * 1_000 + random.randrange(500))


class Federation:
    """A SuperLink and its SuperNodes on loopback, or Flower's simulation; leaving the context stops them.

    `node_configs`: what each node's --node-config holds besides its number. `folder`: where the processes start.
    """

    def __init__(
        self,
        home: Path,
        nodes: int,
        simulation: bool = False,
        node_configs: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        self.home, self.nodes, self.simulation, self.folder = home, nodes, simulation, folder
        self.node_configs = node_configs or [""] * nodes
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
        config = f"partition-id={number} num-partitions={self.nodes} {self.node_configs[number]}".strip()
        address = ["--superlink", f"127.0.0.1:{self.fleet_port}", "--port", str(free_port())]
        self.spawn(f"supernode-{number}", ["flower-supernode", "--insecure", *address, "--node-config", config])

    def spawn(self, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def run(self, config: Mapping[str, object], timeout: float = 280) -> str:
        """`flwr run` of this project until it ends; returns the last lines of all logs."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ["flwr", "run", str(ROOT), "test", "--run-config", pairs, "--stream"]
        if self.simulation:
            command += ["--federation-config", f"num-supernodes={self.nodes} client-resources-num-cpus=1"]
        process = self.spawn("run", command)
        try:
            process.wait(timeout)
        finally:
            stop(process)
        return self.logs()

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
        }

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.home.glob("*.log")))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(*self._processes)


def stop(*processes: "subprocess.Popen[bytes]", patience: float = 10) -> None:
    """Ends processes with everything they started: Flower's programs leave children behind otherwise."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
        deadline = time.monotonic() + patience
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))


def free_port() -> int:
    """A port on which nothing listens; no port is given twice."""
    return next(port for port in PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def await_port(port: int) -> None:
    """Returns once something listens on this port of loopback."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")
