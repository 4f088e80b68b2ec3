"""The files that a machine's home folder needs: its own private key, certificates, and `server.json` or `node.json`.

No machine gets the private key of another one, and none gets the key of the CA.
"""

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedsim import distribution
from fedsim.deploy import operators, pki
from fedsim.deploy.inventory import Inventory, Node
from fedsim.deploy.machine_config import NODE, SERVER, NodeConfig, ServerConfig, to_json
from fedsim.errors import ConfigError

OPERATORS = "operators.json"
LIVE = (OPERATORS,)  # a change of these needs no restart
PACKAGES = (distribution.NAME, "flwr")  # must have the same version on every machine
CA, CERTIFICATE, SERVER_KEY, NODE_KEY = Path("ca.crt"), Path("server.crt"), Path("server.key"), Path("node.key")


@dataclass(frozen=True)
class MachineFiles:
    """Contents by file name; private files are readable by their owner alone. `LIVE` ones are read again and again."""

    private: dict[str, bytes]
    public: dict[str, bytes]


def server_files(inventory: Inventory) -> MachineFiles:
    return MachineFiles(
        private={str(SERVER_KEY): (inventory.secrets / pki.SERVER_KEY).read_bytes()},
        public={
            SERVER: to_json(server_config(inventory)).encode(),
            str(CERTIFICATE): (inventory.secrets / pki.SERVER).read_bytes(),
            str(CA): (inventory.secrets / pki.CA).read_bytes(),
            OPERATORS: operators_file(inventory),
        },
    )


def operators_file(inventory: Inventory) -> bytes:
    """Who may use the SuperLink; raises ConfigError if nobody may."""
    known = operators.read(inventory.folder)
    if not known:
        raise ConfigError(f"{inventory.folder / operators.FILE} lists no operator: run `fedsim deploy init`")
    return operators.to_json(known).encode()


def node_files(inventory: Inventory, node: Node) -> MachineFiles:
    return MachineFiles(
        private={str(NODE_KEY): pki.node_key(inventory.secrets, node.name).read_bytes()},
        public={
            NODE: to_json(node_config(inventory, node)).encode(),
            str(CA): (inventory.secrets / pki.CA).read_bytes(),
        },
    )


def server_config(inventory: Inventory) -> ServerConfig:
    """Without `bind` in the inventory the server listens on all addresses, or on loopback if its host is there."""
    server = inventory.server
    return ServerConfig(
        name=inventory.name,
        host=server.host,
        fleet_port=server.fleet_port,
        control_port=server.control_port,
        ca=CA,
        certificate=CERTIFICATE,
        key=SERVER_KEY,
        versions=versions(),
        bind=server.bind or ("127.0.0.1" if server.host in pki.LOOPBACK else "0.0.0.0"),
    )


def node_config(inventory: Inventory, node: Node) -> NodeConfig:
    return NodeConfig(
        name=node.name,
        superlink=f"{inventory.server.host}:{inventory.server.fleet_port}",
        ca=CA,
        key=NODE_KEY,
        port=node.port,
        config=inventory.node_config(node),
        versions=versions(),
        gpu=node.gpu,
    )


def versions() -> dict[str, str]:
    """The installed versions of PACKAGES on this machine."""
    return {name: version(name) for name in PACKAGES}


def public_keys(inventory: Inventory) -> str:
    """JSON of the nodes' public keys by name, as `fedsim.deploy.control register` reads them."""
    keys = {node.name: pki.node_public(inventory.secrets, node.name).read_text() for node in inventory.nodes}
    return json.dumps(keys, indent=1) + "\n"
