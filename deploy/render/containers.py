"""The container of a machine, for Docker Compose and Kubernetes alike: its paths, its configuration, its commands.

/var/lib/fedsim            home folder, on a volume: state, runs, logs, the SuperLink's database
/var/lib/fedsim/node.json  (or server.json) mounted over it, read-only
/etc/fedsim                certificates, and on the server the public keys of nodes and operators
/run/secrets               the machine's own private key
/data                      a node's own data, read-only
"""

from dataclasses import replace
from pathlib import Path, PurePosixPath

from fedsim.deploy import machine_files, pki
from fedsim.deploy.inventory import Inventory, Node
from fedsim.deploy.machine_config import NodeConfig, ServerConfig
from fedsim.deploy.render.output import absolute_path
from fedsim.distribution import installed_version

HOME, CONFIG, SECRETS, DATA = "/var/lib/fedsim", "/etc/fedsim", "/run/secrets", "/data"
PYTHON = "/usr/local/bin/python"
USER = 10001  # of the image, unless it is built with another one
IMAGE = f"fedsim:{installed_version()}"
# Run in the server's home folder: registers the public keys of the nodes.
REGISTER_KEYS = (
    f"{PYTHON} -m fedsim.deploy.control ready && {PYTHON} -m fedsim.deploy.control register < {CONFIG}/nodes.json"
)


def server_config(inventory: Inventory) -> ServerConfig:
    """The server listens on every address of its container; the container network decides who reaches it."""
    return replace(
        machine_files.server_config(inventory),
        host=pki.CONTAINER_HOST,
        bind="0.0.0.0",
        ca=Path(CONFIG, "ca.crt"),
        certificate=Path(CONFIG, "server.crt"),
        key=Path(SECRETS, "server.key"),
        operators=Path(CONFIG, "operators.json"),
    )


def node_config(inventory: Inventory, node: Node) -> NodeConfig:
    """`gpu` is empty: a container sees only the GPUs it was given, numbered from 0."""
    config = machine_files.node_config(inventory, node)
    data = {"data": data_in_container(node)} if node.data else {}
    return replace(
        config,
        superlink=f"{pki.CONTAINER_HOST}:{inventory.server.fleet_port}",
        ca=Path(CONFIG, "ca.crt"),
        key=Path(SECRETS, "node.key"),
        gpu="",
        config={**config.config, **data},
    )


def data_on_host(node: Node) -> str:
    return absolute_path(node.data, f"data of node {node.name}")


def data_in_container(node: Node) -> str:
    return f"{DATA}/{PurePosixPath(data_on_host(node)).name}"


def gpus(node: Node) -> list[str] | None:
    """The GPUs a node asks for by number; an empty list: any; None: it asks for none (`auto` uses what it is given)."""
    if node.device == "cpu" or not (node.gpu or node.device.startswith("cuda")):
        return None
    return [number.strip() for number in node.gpu.split(",")] if node.gpu else []


def port_check(port: int) -> list[str]:
    """A command that succeeds if a process listens on this port of loopback."""
    return [PYTHON, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 3).close()"]
