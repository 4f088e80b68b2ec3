"""A Ray cluster of two nodes with a token: a run spreads over both, goes on when the second is lost, and can be resumed
when the head is. The tests share one cluster, whose nodes they end in this order.

The nodes are hosts with addresses of their own where network namespaces can be made, else two raylets on loopback.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil  # part of Ray
import pytest

from fedsim import config as configs
from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.deploy.chaos.network import VirtualHost, network
from fedsim.engine.launch import launch
from fedsim.results.record import EVENTS, read_summary
from tests.system_tools import BIN

from .flower import PATIENCE, free_port, stop

pytestmark = pytest.mark.system
CPUS = 1  # of each node
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    logs, token = tmp_path_factory.mktemp("cluster"), {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "7" * 64}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**token, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}.items():
            patch.setenv(name, value)
        with nodes(logs) as started:
            yield started


@contextmanager
def nodes(logs: Path) -> Iterator[Cluster]:
    with TemporaryDirectory(prefix="ray") as folder, network(2) as (first, second):  # short: Ray makes sockets below it
        address = f"{first.address}:{free_port()}"
        ray_start = [str(BIN / "ray"), "start", "--block", f"--num-cpus={CPUS}", "--disable-usage-stats"]
        to_head = [
            "--head",
            f"--port={address.rpartition(':')[2]}",
            f"--temp-dir={folder}",
            "--include-dashboard=false",
        ]
        started = [spawn(first, [*ray_start, *to_head, f"--node-ip-address={first.address}"], logs / "head.log")]
        try:
            await_success(
                first, ["-c", "import sys, socket; socket.create_connection(sys.argv[1:])", *address.split(":")]
            )
            joins = [*ray_start, f"--address={address}", f"--node-ip-address={second.address}"]
            started.append(spawn(second, joins, logs / "second.log"))
            await_success(first, ["-c", ALIVE, address])
            yield Cluster(address, first, *started, logs)
        finally:
            stop(*reversed(started))


def await_success(host: VirtualHost, arguments: Sequence[str]) -> None:
    """Runs a Python program on a host until it ends without an error."""
    deadline = time.monotonic() + PATIENCE
    command = [*shlex.split(host.via), sys.executable, *arguments]
    while (done := subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(done.stderr.decode()[-2000:])
        time.sleep(0.2)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of 40 rounds in this process, whose clients have states."""
    keys = [
        "algorithm=local",
        "clients=8",
        "rounds=40",
        "model=mlr",
        "batch-size=64",
        "local-epochs=20",
        "eval-every=40",
    ]
    config = configs.read(None, [*keys, "checkpoint-every=1", f"out={tmp_path_factory.mktemp('reference') / 'run'}"])
    launch(config, "inline")
    return config


def await_rounds(run: "subprocess.Popen[bytes]", folder: Path, rounds: int) -> None:
    """Returns once a run has done so many rounds, and goes on."""
    deadline = time.monotonic() + PATIENCE
    events = folder / EVENTS
    while not events.exists() or events.read_text().count('"kind": "step"') < rounds:
        assert run.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline, f"no {rounds} rounds within {PATIENCE} s"
        time.sleep(0.05)


def test_a_run_spreads_over_both_nodes(cluster: Cluster, reference: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = cluster.start(reference.replace(out=str(out)))
    await_rounds(run, out, 10)
    workers = cluster.workers()
    cluster.finish(run)
    assert len(workers) == CPUS
    assert read_summary(out)["weights_sha256"] == read_summary(Path(reference.out))["weights_sha256"]


def test_a_lost_node_costs_its_jobs_only(cluster: Cluster, reference: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = cluster.start(reference.replace(out=str(out)))
    await_rounds(run, out, 5)
    assert len(cluster.workers()) == CPUS
    kill(cluster.second)
    cluster.finish(run)
    summary, expected = read_summary(out), read_summary(Path(reference.out))
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert summary["accuracy"] == expected["accuracy"]
    assert summary["failures"] == []


def test_a_lost_head_is_named_and_the_run_can_be_resumed(
    cluster: Cluster, reference: RunConfig, tmp_path: Path
) -> None:
    """The run is on the head's machine: Ray's library ends it as soon as it misses the raylet there."""
    out = tmp_path / "run"
    run = cluster.start(reference.replace(out=str(out)))
    await_rounds(run, out, 5)
    kill(cluster.head)
    assert run.wait(90) == 1
    await_success(
        cluster.host, ["-c", "import sys; sys.exit('fedsim resume' not in open(sys.argv[1]).read())", cluster.log]
    )
    told = cluster.output.strip().splitlines()[-1]
    assert told.startswith("fedsim: ")
    assert "has died. `fedsim resume` goes on" in told or "does not answer: `fedsim resume` goes on" in told
    assert "Traceback" not in cluster.output
    assert main(["resume", str(out), "--engine", "inline"]) == 0
    assert read_summary(out)["weights_sha256"] == read_summary(Path(reference.out))["weights_sha256"]
