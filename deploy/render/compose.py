"""Docker Compose: the whole federation on one machine, a container for the server and one for each node."""

import os
from typing import Any

from deploy import belongings, pki
from deploy.inventory import Inventory, Machine, Node
from deploy.render import containers as inside
from deploy.render import yaml
from deploy.render.output import File, fill, image, operator, secret

REMARK = "The federation in its containers: `fedsim deploy status|run|logs --dir`. Compose starts and stops it."
REGISTER = "register_keys"  # no node can be called that


def files(inventory: Inventory) -> dict[str, File]:
    folder, owner = inventory.secrets, os.getuid() or inside.USER  # a container's user reads secrets as their owner
    machines = {
        name: Machine(via=f"docker exec -i {inventory.name}-{name}", python=inside.PYTHON, home=inside.HOME)
        for name in ("server", *(node.name for node in inventory.nodes))
    }
    written = {
        "compose.yaml": File.of(yaml.dump(_escaped(_compose(inventory, owner)))),
        "README.txt": fill("compose.txt", name=inventory.name, owner=owner),
        "federation.toml": operator(inventory, machines, REMARK),
        "config/ca.crt": File.of((folder / pki.CA).read_bytes()),
        "config/server.crt": File.of((folder / pki.SERVER).read_bytes()),
        "config/nodes.json": File.of(inside.text(belongings.public_keys(inventory))),
        "config/server.json": File.of(inside.text(inside.about_server(inventory))),
        "secrets/server.key": secret((folder / pki.SERVER_KEY).read_bytes(), owner),
        **image(),
    }
    for node in inventory.nodes:
        written[f"config/nodes/{node.name}.json"] = File.of(inside.text(inside.about_node(inventory, node)))
        written[f"secrets/nodes/{node.name}.key"] = secret(pki.node_key(folder, node.name).read_bytes(), owner)
    return written


def _compose(inventory: Inventory, owner: int) -> dict[str, Any]:
    names = [node.name for node in inventory.nodes]
    services = {
        "server": _server(inventory, owner),
        REGISTER: _register(owner),
        **{node.name: _node(inventory, node, owner) for node in inventory.nodes},
    }
    return {
        "name": inventory.name,
        "services": services,
        "networks": {"federation": {}},
        "volumes": {name: {} for name in ("server", *names)},
        "secrets": {
            "server": {"file": "./secrets/server.key"},
            **{name: {"file": f"./secrets/nodes/{name}.key"} for name in names},
        },
    }


def _server(inventory: Inventory, owner: int) -> dict[str, Any]:
    return {
        **_container(owner),
        "container_name": f"{inventory.name}-server",
        "restart": "unless-stopped",
        "networks": {"federation": {"aliases": [pki.INSIDE]}},
        "volumes": [_home("server"), *_server_config()],
        "secrets": [{"source": "server", "target": "server.key"}],
        "healthcheck": _health(inventory.server.fleet_port),
    }


def _register(owner: int) -> dict[str, Any]:
    """Tells the server the nodes' public keys, from its own loopback, and ends."""
    return {
        **_container(owner),
        "command": ["sh", "-c", inside.REGISTER],
        "restart": "on-failure",
        "network_mode": "service:server",
        "depends_on": {"server": {"condition": "service_healthy"}},
        "volumes": _server_config(),
    }


def _node(inventory: Inventory, node: Node, owner: int) -> dict[str, Any]:
    about = _mount(f"./config/nodes/{node.name}.json", f"{inside.HOME}/node.json")
    data = [_mount(inside.data_outside(node), inside.data_inside(node))] if node.data else []
    return {
        **_container(owner),
        "container_name": f"{inventory.name}-{node.name}",
        "restart": "unless-stopped",
        "depends_on": {REGISTER: {"condition": "service_completed_successfully"}},
        "networks": ["federation"],
        "volumes": [_home(node.name), about, _mount("./config/ca.crt", f"{inside.CONFIG}/ca.crt"), *data],
        "secrets": [{"source": node.name, "target": "node.key"}],
        "healthcheck": _health(node.port),
        **_gpus(node),
    }


def _container(owner: int) -> dict[str, Any]:
    return {
        "image": inside.IMAGE,
        "build": {"context": ".", "args": {"UID": str(owner), "GID": str(owner)}},
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": "30s",
    }


def _gpus(node: Node) -> dict[str, Any]:
    wanted = inside.gpus(node)
    if wanted is None:
        return {}
    which: dict[str, Any] = {"device_ids": wanted} if wanted else {"count": "all"}
    device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _health(port: int) -> dict[str, Any]:
    often = {"interval": "15s", "timeout": "5s", "retries": 6, "start_period": "90s"}
    return {"test": ["CMD", *inside.knock(port)], **often}


def _server_config() -> list[dict[str, Any]]:
    about = _mount("./config/server.json", f"{inside.HOME}/server.json")
    return [about, *(_mount(f"./config/{n}", f"{inside.CONFIG}/{n}") for n in ("ca.crt", "server.crt", "nodes.json"))]


def _home(volume: str) -> dict[str, Any]:
    return {"type": "volume", "source": volume, "target": inside.HOME}


def _mount(source: str, target: str) -> dict[str, Any]:
    """Read-only; a source that is missing is an error, not a new empty folder."""
    return {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": True,
        "bind": {"create_host_path": False},
    }


def _escaped(value: Any) -> Any:
    """Compose takes $ for a variable."""
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
