"""Ray on this machine or on a cluster: how a run starts or joins it, and how many workers it has there."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.node import Node
from ray.exceptions import RayError

from fedsim.config import RunConfig
from fedsim.errors import FedsimError


def connect(config: RunConfig, address: str | None = None) -> None:
    """Starts Ray on this machine, reachable from this machine alone, or joins the cluster at `address`.

    A grid does it by itself if Ray is not initialized. Raises FedsimError if it cannot be done.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; without it, it warns
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is not None:
            _check_reachable(address)
            ray.init(address, **quiet)
        else:
            with _loopback_only(), _workers_only():
                cpus = max(config.workers, os.cpu_count() or 1)
                ray.init("local", num_cpus=cpus, include_dashboard=False, **quiet)
    except (RayError, OSError, ValueError, RuntimeError) as error:
        raise FedsimError(f"cannot join Ray at {address or 'this machine'}: {error}") from error


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


def _check_reachable(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT; Ray itself takes minutes to find out."""
    host, _, port = address.rpartition(":")
    if host and "//" not in host and port.isdigit():
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
