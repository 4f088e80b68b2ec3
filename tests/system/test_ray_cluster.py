"""A Ray cluster of two nodes with a token: a run spreads over both, goes on when the second is lost, and can be resumed
when the head is. Shares of declared GPUs.

The nodes are hosts with addresses of their own where network namespaces can be made, else two raylets on loopback.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil  # part of Ray
import pytest
import ray

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.deploy.chaos.network import VirtualHost, network
from fedsim.engine import ray as engine
from fedsim.engine.launch import launch
from fedsim.results.record import EVENTS, read_summary
from tests.system_tools import BIN

from .flower import PATIENCE, free_port, stop

pytestmark = pytest.mark.system
CPUS = 2  # of each node
ALIVE = (
    "import sys, time, ray; ray.init(sys.argv[1], log_to_driver=False)\n"
    "while sum(node['Alive'] for node in ray.nodes()) < 2: time.sleep(0.2)"
)


@dataclass
class Cluster:
    address: str
    host: VirtualHost  # of the head node, where the run itself happens
    head: "subprocess.Popen[bytes]"
    second: "subprocess.Popen[bytes]"  # the other node
    logs: Path

    def start(self, config: RunConfig) -> "subprocess.Popen[bytes]":
        """`fedsim run` on this cluster."""
        keys = [word for key, value in config.flat().items() for word in ("--set", f"{key}={value}")]
        command = [str(BIN / "fedsim"), "run", "--ray-address", self.address, *keys]
        return spawn(self.host, command, self.logs / "run.log")

    @property
    def log(self) -> str:
        return str(self.logs / "run.log")

    @property
    def output(self) -> str:
        return Path(self.log).read_text()

    def finish(self, run: "subprocess.Popen[bytes]", seconds: float = 120) -> None:
        try:
            run.wait(seconds)
        finally:
            stop(run)
        assert run.returncode == 0, self.output[-3000:]

    def workers(self) -> list[psutil.Process]:
        """The processes of fedsim's workers on the second node."""
        found = []
        for process in psutil.Process(self.second.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith("ray::Worker"):
                    found.append(process)
        return found


def kill(node: "subprocess.Popen[bytes]") -> None:
    """Ends every process of a node at once, as a machine that loses its power does."""
    started = psutil.Process(node.pid)
    for process in [started, *started.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def spawn(host: VirtualHost, command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    words = [*shlex.split(host.via), *command]
    with log.open("wb") as file:
        return subprocess.Popen(words, stdout=file, stderr=file, start_new_session=True)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "7" * 64)
    with TemporaryDirectory(prefix="ray") as folder, network(2) as (first, second):  # short: Ray makes sockets below it
        address = f"{first.address}:{free_port()}"
        ray_start = [str(BIN / "ray"), "start", "--block", f"--num-cpus={CPUS}", "--disable-usage-stats"]
        to_head = [
            "--head",
            f"--port={address.rpartition(':')[2]}",
            f"--temp-dir={folder}",
            "--include-dashboard=false",
        ]
        nodes = [spawn(first, [*ray_start, *to_head, f"--node-ip-address={first.address}"], tmp_path / "head.log")]
        try:
            await_success(
                first, ["-c", "import sys, socket; socket.create_connection(sys.argv[1:])", *address.split(":")]
            )
            joins = [*ray_start, f"--address={address}", f"--node-ip-address={second.address}"]
            nodes.append(spawn(second, joins, tmp_path / "second.log"))
            await_success(first, ["-c", ALIVE, address])
            yield Cluster(address, first, *nodes, tmp_path)
        finally:
            stop(*reversed(nodes))


def await_success(host: VirtualHost, arguments: Sequence[str]) -> None:
    """Runs a Python program on a host until it ends without an error."""
    deadline = time.monotonic() + PATIENCE
    command = [*shlex.split(host.via), sys.executable, *arguments]
    while (done := subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(done.stderr.decode()[-2000:])
        time.sleep(0.2)


@pytest.fixture
def long_run(small: Callable[..., RunConfig], tmp_path: Path) -> Callable[..., tuple[RunConfig, dict[str, Any]]]:
    """A run of 40 rounds for the cluster, and the summary of the same run in this process."""

    def make(algorithm: str) -> tuple[RunConfig, dict[str, Any]]:
        config = small(f"algorithm={algorithm}", "clients=8", "rounds=40", "local-epochs=20", "eval-every=40")
        launch(config.replace(out=str(tmp_path / "inline")), "inline")
        return config.replace(out=str(tmp_path / "cluster")), read_summary(tmp_path / "inline")

    return make


def await_rounds(run: "subprocess.Popen[bytes]", folder: Path, rounds: int) -> None:
    """Returns once a run has done so many rounds, and goes on."""
    deadline = time.monotonic() + PATIENCE
    events = folder / EVENTS
    while not events.exists() or events.read_text().count('"kind": "step"') < rounds:
        assert run.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline, f"no {rounds} rounds within {PATIENCE} s"
        time.sleep(0.05)


def test_a_run_spreads_over_both_nodes(cluster: Cluster, long_run: Callable[..., Any]) -> None:
    config, expected = long_run("fedavg")
    run = cluster.start(config)
    await_rounds(run, Path(config.out), 10)
    workers = cluster.workers()
    cluster.finish(run)
    assert len(workers) == CPUS
    assert read_summary(Path(config.out))["weights_sha256"] == expected["weights_sha256"]


def test_a_lost_node_costs_its_jobs_only(cluster: Cluster, long_run: Callable[..., Any]) -> None:
    config, expected = long_run("local")  # whose clients have states
    run = cluster.start(config)
    await_rounds(run, Path(config.out), 5)
    assert len(cluster.workers()) == CPUS
    kill(cluster.second)
    cluster.finish(run)
    summary = read_summary(Path(config.out))
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert summary["accuracy"] == expected["accuracy"]
    assert summary["failures"] == []


def test_a_lost_head_is_named_and_the_run_can_be_resumed(cluster: Cluster, long_run: Callable[..., Any]) -> None:
    """The run is on the head's machine: Ray's library ends it as soon as it misses the raylet there."""
    config, expected = long_run("local")
    run = cluster.start(config.replace(checkpoint_every=1))
    await_rounds(run, Path(config.out), 5)
    kill(cluster.head)
    assert run.wait(90) == 1
    await_success(
        cluster.host, ["-c", "import sys; sys.exit('fedsim resume' not in open(sys.argv[1]).read())", cluster.log]
    )
    told = cluster.output.strip().splitlines()[-1]
    assert told.startswith("fedsim: ")
    assert "has died. `fedsim resume` goes on" in told or "does not answer: `fedsim resume` goes on" in told
    assert "Traceback" not in cluster.output
    assert main(["resume", config.out, "--engine", "inline"]) == 0
    assert read_summary(Path(config.out))["weights_sha256"] == expected["weights_sha256"]


@pytest.mark.usefixtures("without_ray")
def test_workers_share_declared_gpus(small: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray believes what it is told: no GPU is needed to see how they are divided."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # without it, Ray warns
    ray.init("local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        grid = engine.RayGrid(small("worker-gpus=0.5", "device=cpu", "clients=10"))
        try:
            ask = [slot.actor.__ray_call__.remote(lambda _: _assigned()) for slot in grid._slots]
            assigned = ray.get(ask, timeout=120)
            assert [share["GPU"] for share in assigned] == [0.5] * 4
            assert ray.available_resources().get("GPU", 0) == 0
        finally:
            grid.close()
    finally:
        ray.shutdown()


def _assigned() -> dict[str, float]:
    found: dict[str, float] = ray.get_runtime_context().get_assigned_resources()
    return found
