"""The inventory `federation.toml`: the machines of a federation, and how commands reach each of them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsim.config import Scalar, build
from fedsim.deploy.machine_config import Port
from fedsim.errors import ConfigError, unknown

FILE = "federation.toml"
KEYS = ("name", "operator", "server", "node")
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
VENV = ".fedsim/venv"  # on a machine reached by ssh, below the login folder
# keys of the node config that `config` must not set
RESERVED = ("partition-id", "data", "device", "model", "state-dir")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the server or a node runs, and how commands get there: on this machine, by ssh, or through another command."""

    host: str = "127.0.0.1"  # the address that other machines know it by
    ssh: str = ""  # the arguments of `ssh`: user@host, options included; empty: not by ssh
    via: str = ""  # another command that runs its arguments there: "ip netns exec b", "docker exec -i c"
    python: str = ""  # a Python with fedsim, or the folder of its virtual environment
    home: str = ""  # folder for keys, logs and state

    def __post_init__(self) -> None:
        if self.ssh and self.via:
            raise ConfigError(f"{self.host}: give either ssh or via, not both")

    @property
    def remote(self) -> bool:
        """Whether it may have another file system than this machine."""
        return bool(self.ssh or self.via)


@dataclass(frozen=True, kw_only=True)
class Server(Machine):
    fleet_port: Port = 9092  # nodes connect here: gRPC with TLS
    control_port: Port = 8000  # for commands and the ServerApp, on the server's loopback only
    names: tuple[str, ...] = ()  # further names and addresses for its certificate
    bind: str = ""  # address to listen on; empty: all, or loopback if the host is there


@dataclass(frozen=True, kw_only=True)
class Node(Machine):
    name: str = ""
    partition_id: int = -1  # the stable client id; -1: the node's position in the file
    data: str = ""  # an .npz file or an image folder on that machine; empty: its share of the run's dataset
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    model: str = ""  # the name of its model; empty: what the run says
    gpu: str = ""  # GPUs this node may see (CUDA_VISIBLE_DEVICES); empty: all
    port: Port = 9094  # between the SuperNode and its executor, on loopback; one per node on a machine
    config: Mapping[str, Scalar] = field(default_factory=dict, hash=False)  # further node configuration
    joined: bool = False  # its site made its key and starts it (`fedsim deploy join`); commands do not reach it


@dataclass(frozen=True)
class Inventory:
    name: str
    server: Server
    nodes: tuple[Node, ...]
    folder: Path  # of the file; the folder `secrets` with certificates and keys lies in it
    operator: str = ""  # file with the private key that commands are signed with; empty: the only one in `secrets`

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def managed(self) -> tuple[Node, ...]:
        """The nodes that commands reach, and whose keys are kept here."""
        return tuple(node for node in self.nodes if not node.joined)

    def home(self, name: str, machine: Machine) -> str:
        """The home folder of the server or a node: beside the inventory, or below the login folder of a machine by ssh."""
        if machine.home:
            return machine.home
        return f".fedsim/{self.name}/{name}" if machine.ssh else str(self.folder / "homes" / name)

    def node_config(self, node: Node) -> dict[str, Scalar]:
        """Flower's node config, which the ClientApp of this node reads."""
        own: dict[str, Scalar] = {"partition-id": node.partition_id, "num-partitions": len(self.nodes)}
        own |= {key: value for key, value in (("data", node.data), ("model", node.model)) if value}
        return {**own, "device": node.device, "state-dir": "state", **node.config}


def read(path: Path, check: bool = True) -> Inventory:
    """Reads an inventory; raises ConfigError that names the file and the key. `check`: also relations between machines."""
    try:
        tree = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}. `fedsim deploy init` writes one") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    if unexpected := sorted(set(tree) - set(KEYS)):
        unknown(f"key in {path}", unexpected[0], KEYS)
    try:
        nodes = [_node(position, dict(values)) for position, values in enumerate(tree.get("node", []))]
        server = build(Server, _joined(tree.get("server", {})), "server")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    name, operator = str(tree.get("name", "federation")), str(tree.get("operator", ""))
    inventory = Inventory(name, server, tuple(nodes), path.parent.resolve(), operator)
    if check:
        _check(inventory, path)
    return inventory


def _node(position: int, values: dict[str, Any]) -> Node:
    config = values.pop("config", {})
    if reserved := [key for key in RESERVED if key in config]:
        raise ConfigError(f"node {values.get('name', position)}: set {reserved[0]} beside config, not inside it")
    node = build(Node, {"partition-id": position, **_joined(values)}, "node", {"config": config})
    if not NAME.fullmatch(node.name):
        raise ConfigError(f"node {position} has the name {node.name!r}: use small letters, digits and dashes")
    return node


def _joined(values: Mapping[str, Any]) -> dict[str, Scalar]:
    return {key: ",".join(map(str, value)) if isinstance(value, list) else value for key, value in values.items()}


def _check(inventory: Inventory, path: Path) -> None:
    if not NAME.fullmatch(inventory.name):
        raise ConfigError(f"{path}: the name {inventory.name!r} must be of small letters, digits and dashes")
    if not inventory.nodes:
        raise ConfigError(
            f"{path} lists no node: run `fedsim deploy init --add-node NAME`, or approve one with `fedsim deploy approve`"
        )
    if any(node.name == "server" for node in inventory.nodes):
        raise ConfigError(f"{path}: a node cannot be called server")
    _distinct("name", [node.name for node in inventory.nodes], path)
    _distinct("partition-id", [node.partition_id for node in inventory.nodes], path)
    server, managed = inventory.server, inventory.managed
    machines = [_machine(node) for node in managed]
    ports = [f"{_machine(server)}, {port}" for port in (server.fleet_port, server.control_port)]
    ports += [f"{machine}, {node.port}" for machine, node in zip(machines, managed, strict=True)]
    _distinct("machine and port", ports, path)
    homes = [f"{_machine(server)}, {inventory.home('server', server)}"]
    homes += [f"{machine}, {inventory.home(n.name, n)}" for machine, n in zip(machines, managed, strict=True)]
    _distinct("machine and home", homes, path)
    for node in inventory.nodes:
        if not 0 <= node.partition_id < len(inventory.nodes):
            highest = len(inventory.nodes) - 1
            raise ConfigError(
                f"{path}: node {node.name} has partition-id {node.partition_id}; 0 to {highest} are needed"
            )


def _machine(machine: Machine) -> str:
    return machine.ssh or machine.via or "this machine"


def _distinct(what: str, values: list[Any], path: Path) -> None:
    if twice := {str(value) for value in values if values.count(value) > 1}:
        raise ConfigError(f"{path}: two of them have the same {what}, {min(twice)}")


TEMPLATE = """\
# A federation: one server, and the nodes that train. `fedsim deploy up` starts it, `fedsim deploy run` runs on it.
# Commands reach a machine by ssh (the arguments of `ssh`), or through another command that runs its arguments there
# (via = "docker exec -i box"). With neither of them it is this machine.

name = "{name}"

[server]
host = "{host}"             # the address nodes connect to; the certificate is made for it
# names = ["fl.example.org"]      # further names and addresses of the server
# ssh = "fed@fl.example.org"      # empty: the server is this machine
# python = "/opt/fedsim"          # a Python with fedsim, or its virtual environment (by ssh: ~/.fedsim/venv)
# home = "/var/lib/fedsim"        # keys, logs, runs (by ssh: ~/.fedsim/{name}/server)
fleet-port = 9092               # nodes connect here: gRPC, TLS, by registered keys only
control-port = 8000             # for the server's own commands, on its loopback only
"""

NODE_TEMPLATE = """
[[node]]
name = "{name}"
# host = "192.0.2.7"              # information only: nodes connect to the server, never the other way round
# ssh = "fed@hospital.example.org"
# python = "/opt/fedsim"
# data = "/data/silo.npz"         # its own data (or an image folder); empty: its share of the run's dataset
partition-id = {id}                # the client id; never change it
device = "auto"                 # auto | cpu | cuda | cuda:N
# gpu = "0"                       # which GPUs it may see
# model = "cnn"                   # its own model, in runs of algorithms that allow different ones
port = {port}                     # on its loopback; one per node on a machine
# config = {{ ward = "b" }}         # further node configuration
"""


JOINED_TEMPLATE = """
[[node]]
name = "{name}"
partition-id = {id}                # the client id; never change it
joined = true                   # its site made its key and starts it
"""


def joined_template(name: str, position: int) -> str:
    return JOINED_TEMPLATE.format(name=name, id=position)


def template(name: str, host: str, nodes: int) -> str:
    """A commented inventory to edit."""
    return TEMPLATE.format(name=name, host=host) + "".join(node_template(f"node-{i}", i) for i in range(nodes))


def node_template(name: str, position: int) -> str:
    return NODE_TEMPLATE.format(name=name, id=position, port=9094 + position)
