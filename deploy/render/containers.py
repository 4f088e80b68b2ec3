"""How a machine of the federation looks from inside a container, whoever starts it.

/var/lib/fedsim            its home, on a volume: state, runs, logs, the SuperLink's database
/var/lib/fedsim/node.json  (or server.json) mounted over it, read-only
/etc/fedsim                certificates, and on the server the public keys of the nodes
/run/secrets               its own private key
/data                      a silo's own data, read-only
"""

import json
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

from deploy import belongings, pki
from deploy.inventory import Inventory, Node
from deploy.render.output import absolute

HOME, CONFIG, SECRETS, DATA = "/var/lib/fedsim", "/etc/fedsim", "/run/secrets", "/data"
PYTHON = "/usr/local/bin/python"
USER = 10001  # of the image, unless it is built with another one
IMAGE = f"fedsim:{version('fedsim')}"
# In the home: tells the server which keys are the nodes'.
REGISTER = f"{PYTHON} -m deploy.office ready && {PYTHON} -m deploy.office register < {CONFIG}/nodes.json"


def about_server(inventory: Inventory) -> dict[str, Any]:
    """It listens on every address of its container; who may come is the network's business."""
    return {
        **belongings.about_server(inventory),
        "host": pki.INSIDE,
        "bind": "0.0.0.0",
        "ca": f"{CONFIG}/ca.crt",
        "certificate": f"{CONFIG}/server.crt",
        "key": f"{SECRETS}/server.key",
    }


def about_node(inventory: Inventory, node: Node) -> dict[str, Any]:
    """A container sees only the GPUs it was given, numbered from 0: there is nothing left to choose."""
    about = belongings.about_node(inventory, node)
    data = {"data": data_inside(node)} if node.data else {}
    return {
        **about,
        "superlink": f"{pki.INSIDE}:{inventory.server.fleet_port}",
        "ca": f"{CONFIG}/ca.crt",
        "key": f"{SECRETS}/node.key",
        "gpu": "",
        "config": {**about["config"], **data},
    }


def data_outside(node: Node) -> str:
    return absolute(node.data, f"data of node {node.name}")


def data_inside(node: Node) -> str:
    return f"{DATA}/{PurePosixPath(data_outside(node)).name}"


def gpus(node: Node) -> list[str] | None:
    """The GPUs a node asks for by number; an empty list: any; None: it asks for none (`auto` takes what there is)."""
    if node.device == "cpu" or not (node.gpu or node.device.startswith("cuda")):
        return None
    return [number.strip() for number in node.gpu.split(",")] if node.gpu else []


def knock(port: int) -> list[str]:
    """A command that succeeds if something listens there."""
    return [PYTHON, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 3).close()"]


def text(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
