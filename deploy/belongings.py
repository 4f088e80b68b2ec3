"""What a machine's home holds: its own keys, the authority's certificate, and a server.json or node.json.

The last says what `deploy.agent` runs there; paths in it are relative to the home. Nothing of another machine is among them.
"""

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from deploy import pki
from deploy.inventory import Inventory, Node

PACKAGES = ("fedsim", "flwr")  # of the same version everywhere


@dataclass(frozen=True)
class Belongings:
    """Files by name; private ones are for their owner alone."""

    private: dict[str, bytes]
    public: dict[str, bytes]


def of_server(inventory: Inventory) -> Belongings:
    return Belongings(
        {"server.key": (inventory.secrets / pki.SERVER_KEY).read_bytes()},
        {
            "server.json": as_json(about_server(inventory)),
            "server.crt": (inventory.secrets / pki.SERVER).read_bytes(),
            "ca.crt": (inventory.secrets / pki.CA).read_bytes(),
        },
    )


def of_node(inventory: Inventory, node: Node) -> Belongings:
    return Belongings(
        {"node.key": pki.node_key(inventory.secrets, node.name).read_bytes()},
        {
            "node.json": as_json(about_node(inventory, node)),
            "ca.crt": (inventory.secrets / pki.CA).read_bytes(),
        },
    )


def about_server(inventory: Inventory) -> dict[str, Any]:
    server = inventory.server
    loopback = server.host in pki.LOOPBACK
    return {
        "role": "server",
        "name": inventory.name,
        "host": server.host,
        "bind": server.bind or ("127.0.0.1" if loopback else "0.0.0.0"),
        "fleet-port": server.fleet_port,
        "control-port": server.control_port,
        "ca": "ca.crt",
        "certificate": "server.crt",
        "key": "server.key",
        "versions": versions(),
    }


def about_node(inventory: Inventory, node: Node) -> dict[str, Any]:
    server = inventory.server
    return {
        "role": "node",
        "name": node.name,
        "superlink": f"{server.host}:{server.fleet_port}",
        "ca": "ca.crt",
        "key": "node.key",
        "port": node.port,
        "gpu": node.gpu,
        "config": inventory.node_config(node),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def public_keys(inventory: Inventory) -> dict[str, str]:
    """By node, as `deploy.office register` takes them."""
    return {node.name: pki.node_public(inventory.secrets, node.name).read_text() for node in inventory.nodes}


def as_json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()
