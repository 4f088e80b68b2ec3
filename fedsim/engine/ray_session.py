"""Ray on this machine or on a cluster: how a run starts or joins it, who else may, and how many workers it has there.

Whoever reaches a Ray cluster can run code on it as its user. Ray on this machine gets a token of its own, and a cluster that
asks for none is not joined (see `check_token`).
"""

import atexit
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import ray
from ray._private import ray_constants
from ray._private.node import Node

from fedsim.config import RunConfig
from fedsim.errors import FedsimError

AUTH_MODE, AUTH_TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"  # variables of the environment that Ray reads
ANY_CALL = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"  # of a cluster's head
PROBE_SECONDS = 5.0
ESSENTIAL = (ray_constants.PROCESS_TYPE_GCS_SERVER, ray_constants.PROCESS_TYPE_RAYLET)
SPEAK = "import sys; sys.stdin.read() or sys.stderr.write(sys.argv[1])"  # standard input is closed when a process ends
ENDED = (
    "the run ended without an error: it was killed, or Ray on this machine has died. `fedsim resume` goes on from the last "
    "checkpoint"
)
CHECK_SECONDS = 2.0  # between two looks at Ray
SILENCE_SECONDS = 20.0  # of a cluster's head, after which it is lost; Ray itself would end this process after 60


_started: dict[str, Any] = {"address": "", "cpus": 0}  # the Ray on this machine that this process started last


def join(workers: int, address: str | None = None) -> bool:
    """Connects this process to Ray, unless it is connected. Returns whether it joined the cluster at `address`, which it
    leaves at the end of its run. Ray on this machine stays for the next run, unless that has more workers than Ray has
    cores; it ends with the process, or by `ray.shutdown()`. Raises FedsimError if it cannot be done.
    """
    if ray.is_initialized():
        if not started_here() or (address is None and workers <= _started["cpus"]):
            return False
        leave()
    connect(workers, address)
    return address is not None


def leave() -> None:
    """Disconnects this process from Ray, which ends if it was started here. Another Ray that is started or joined later
    asks for another token than the one of `connect`, or for none."""
    ray.shutdown()
    _read_token()


def started_here() -> bool:
    """Whether this process is connected to a Ray that it started by `connect`."""
    return ray.is_initialized() and ray.get_runtime_context().gcs_address == _started["address"]


def connect(workers: int, address: str | None = None) -> None:
    """Starts Ray on this machine, reachable from this machine alone, or joins the cluster at `address`.

    Raises FedsimError if it cannot be done.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; without it, it warns
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is not None:
            _read_token()
            if _is_host_and_port(address):
                _check_reachable(address)
                check_token(address)
            ray.init(address, **quiet)
        else:
            with _loopback_only(), _workers_only(), _own_token():
                cpus = max(workers, os.cpu_count() or 1)
                ray.init("local", num_cpus=cpus, include_dashboard=False, **quiet)
            _started.update(address=ray.get_runtime_context().gcs_address, cpus=cpus)
            atexit.register(ray.shutdown)  # Ray's own call at exit waits for half a second
    except Exception as error:  # Ray raises a bare one if its processes take too long to start
        raise FedsimError(f"cannot join Ray at {address or 'this machine'}: {error}") from error


@contextmanager
def _own_token() -> Iterator[None]:
    """Lets the Ray that is started inside take orders from this process alone, not from other accounts of the machine: its
    token is drawn here and passed to Ray's processes. A user's own choice of the mode is respected."""
    chosen = {} if AUTH_MODE in os.environ else {AUTH_MODE: "token", AUTH_TOKEN: secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        _read_token()
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            os.environ.update({} if value is None else {name: value})


def _read_token() -> None:
    """Lets Ray read mode and token from the environment again, which it otherwise does once when it is imported."""
    core: Any = ray._raylet
    core.Config.initialize("")
    core.AuthenticationTokenLoader.instance().reset_cache()


def check_token(address: str) -> None:
    """Raises FedsimError if the cluster at HOST:PORT takes orders from anybody, unless the user said that this is intended,
    or if it asks for a token that this process does not send."""
    answer, mode = probe(address), os.environ.get(AUTH_MODE)
    if answer == grpc.StatusCode.OK and mode != "disabled":
        raise FedsimError(
            f"the Ray cluster at {address} asks for no token, so that whoever reaches it can run code on it: start it "
            f"with {AUTH_MODE}=token (see docs/simulate.md), or set {AUTH_MODE}=disabled if its network is trusted"
        )
    if answer == grpc.StatusCode.UNAUTHENTICATED and mode != "token":
        raise FedsimError(
            f"the Ray cluster at {address} asks for its token: set {AUTH_MODE}=token, and the token in {AUTH_TOKEN}, in "
            "the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token"
        )


def probe(address: str) -> Any:
    """How the head of the cluster at HOST:PORT answers a call without a token: a `grpc.StatusCode`; None: not at all."""
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(ANY_CALL)(b"", timeout=PROBE_SECONDS)
        except grpc.RpcError as error:
            code = error.code()
            return None if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) else code
    return grpc.StatusCode.OK


class Watchdog:
    """Notices that Ray itself is gone. Ray's own calls would wait for minutes, or end this process without a word.

    Of Ray on this machine the processes are watched that `connect` started. Of a cluster, its head is called, and asked
    whether it still counts this machine in.
    """

    def __init__(self) -> None:
        node: Any = ray._private.worker._global_node
        self._processes = {
            name: infos[0].process for name, infos in node.all_processes.items() if name in ESSENTIAL and infos
        }
        self._head = str(ray.get_runtime_context().gcs_address)
        self._node = str(ray.get_runtime_context().get_node_id())
        self._checked = self._heard = time.monotonic()
        self.lost = ""  # in words, what is gone

    def check(self, at_once: bool = False) -> None:
        """Raises FedsimError if Ray is gone; `at_once`: even if the last check was a moment ago."""
        now = time.monotonic()
        if self.lost or (now - self._checked < CHECK_SECONDS and not at_once):
            return
        if self._processes:
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            self.lost = f"Ray's process {ended[0]} on this machine has ended" if ended else ""
        else:
            self._check_cluster()
        self._checked = time.monotonic()
        if self.lost:
            raise FedsimError(f"{self.lost}: `fedsim resume` goes on from the last checkpoint")

    def _check_cluster(self) -> None:
        if probe(self._head) is None:
            if time.monotonic() - self._heard > SILENCE_SECONDS:
                self.lost = f"the head of the Ray cluster at {self._head} does not answer"
            return
        self._heard = time.monotonic()
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        if not any(node["NodeID"] == self._node and node["Alive"] for node in nodes):
            self.lost = f"the Ray cluster at {self._head} has lost this machine"


class LastWords:
    """A process that tells the user what to do if this one ends without a word: Ray's library ends it at once when the
    raylet of this machine is gone."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", SPEAK, f"fedsim: {ENDED}\n"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, start_new_session=True
        )  # out of Ctrl-C's reach

    def cancel(self) -> None:
        """This process goes on, or tells by itself why it ends."""
        self._process.communicate(b"cancelled")


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Lets Ray bind its ports to the loopback interface instead of all interfaces.

    Ray replaces `_node_ip_address="127.0.0.1"` by the machine's address unless its support of clusters is switched off.
    The switch is read from the environment when Ray is imported, here and in the processes that Ray starts.
    """
    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    constant, before = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(variable)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[variable] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        del os.environ[variable]
        os.environ.update({} if before is None else {variable: before})


@contextmanager
def _workers_only() -> Iterator[None]:
    """Lets Ray start nothing that workers do not need: no API server, no log monitor, no autoscaler.

    `include_dashboard=False` and `log_to_driver=False` still start these processes of Python.
    """
    unneeded = ("start_api_server", "start_log_monitor", "start_monitor")
    started = {name: getattr(Node, name) for name in unneeded}
    for name in unneeded:
        setattr(Node, name, lambda self, **options: None)
    try:
        yield
    finally:
        for name, method in started.items():
            setattr(Node, name, method)


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and "//" not in host and port.isdigit()


def _check_reachable(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT; Ray itself takes minutes to find out."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def check_gpus(config: RunConfig) -> None:
    """Raises FedsimError if a worker asks for more GPUs than there are; Ray would wait for them forever."""
    gpus = ray.cluster_resources().get("GPU", 0.0)  # type: ignore[no-untyped-call]
    if config.worker_gpus > gpus:
        raise FedsimError(f"worker-gpus={config.worker_gpus}, but Ray sees {gpus:g} GPUs")


def worker_shares(config: RunConfig) -> tuple[int, float, float]:
    """The number of workers, and the share of the cores and of a GPU that each asks for.

    On the wall clock every client gets a worker of its own: one that sleeps its delay must not keep others waiting.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus, gpus = int(resources.get("CPU", 1)), resources.get("GPU", 0.0)
    check_gpus(config)
    most = int(gpus / config.worker_gpus) if config.worker_gpus else cpus
    usual = config.clients if config.clock == "wall" else min(most, cpus)
    workers = min(config.workers or usual, config.clients)
    share = config.worker_gpus or (gpus / workers if config.device != "cpu" else 0.0)
    return workers, min(1.0, cpus / workers), share
