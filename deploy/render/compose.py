"""Files for Docker Compose: the whole federation on one machine, a container for the server and one for each node."""

import os
from typing import Any

from fedsim.deploy import machine_files, pki
from fedsim.deploy.inventory import Inventory, Machine, Node
from fedsim.deploy.machine_config import to_json
from fedsim.deploy.render import containers
from fedsim.deploy.render.output import File, base_image_note, from_template, image_files, operator_inventory, secret
from fedsim.deploy.render.yaml_text import to_yaml

REMARK = "The federation in its containers: `fedsim deploy status|run|logs --dir`. Compose starts and stops it."
REGISTER = "register_keys"  # a service; no node can have this name


def files(inventory: Inventory, base: str = "") -> dict[str, File]:
    folder = inventory.secrets
    owner = os.getuid() or containers.USER  # of the secrets; the containers run as this user to read them
    machines = {
        name: Machine(via=f"docker exec -i {inventory.name}-{name}", python=containers.PYTHON, home=containers.HOME)
        for name in ("server", *(node.name for node in inventory.managed))
    }
    written = {
        "compose.yaml": File.of(to_yaml(_escaped(_compose(inventory, owner)))),
        "README.txt": from_template("compose.txt", name=inventory.name, owner=owner, base=base_image_note(base)),
        "federation.toml": operator_inventory(inventory, machines, REMARK),
        "config/ca.crt": File.of((folder / pki.CA).read_bytes()),
        "config/trust.crt": File.of((folder / pki.TRUST).read_bytes()),
        "config/server.crt": File.of((folder / pki.SERVER).read_bytes()),
        "config/nodes.json": File.of(machine_files.public_keys(inventory)),
        "config/operators.json": File.of(machine_files.operators_file(inventory)),
        "config/server.json": File.of(to_json(containers.server_config(inventory))),
        "secrets/server.key": secret((folder / pki.SERVER_KEY).read_bytes(), owner),
        **image_files(base),
    }
    for node in inventory.managed:
        written[f"config/nodes/{node.name}.json"] = File.of(to_json(containers.node_config(inventory, node)))
        written[f"secrets/nodes/{node.name}.key"] = secret(pki.node_key(folder, node.name).read_bytes(), owner)
    return written


def _compose(inventory: Inventory, owner: int) -> dict[str, Any]:
    names = [node.name for node in inventory.managed]
    services = {
        "server": _server(inventory, owner),
        REGISTER: _register(owner),
        **{node.name: _node(inventory, node, owner) for node in inventory.managed},
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
        "networks": {"federation": {"aliases": [pki.CONTAINER_HOST]}},
        "volumes": [_home("server"), *_server_config()],
        "secrets": [{"source": "server", "target": "server.key"}],
        "healthcheck": _health(inventory.server.fleet_port),
    }


def _register(owner: int) -> dict[str, Any]:
    """Registers the nodes' public keys over the server's loopback, with the server's own key on its volume, and ends."""
    return {
        **_container(owner),
        "command": ["sh", "-c", containers.REGISTER_KEYS],
        "restart": "on-failure",
        "network_mode": "service:server",
        "depends_on": {"server": {"condition": "service_healthy"}},
        "volumes": [{**_home("server"), "read_only": True}, *_server_config()],
    }


def _node(inventory: Inventory, node: Node, owner: int) -> dict[str, Any]:
    config = _mount(f"./config/nodes/{node.name}.json", f"{containers.HOME}/node.json")
    data = [_mount(containers.data_on_host(node), containers.data_in_container(node))] if node.data else []
    return {
        **_container(owner),
        "container_name": f"{inventory.name}-{node.name}",
        "restart": "unless-stopped",
        "depends_on": {REGISTER: {"condition": "service_completed_successfully"}},
        "networks": ["federation"],
        "volumes": [_home(node.name), config, _mount("./config/trust.crt", f"{containers.CONFIG}/ca.crt"), *data],
        "secrets": [{"source": node.name, "target": "node.key"}],
        "healthcheck": _health(node.port),
        **_gpus(node),
    }


def _container(owner: int) -> dict[str, Any]:
    return {
        "image": containers.IMAGE,
        "build": {"context": ".", "args": {"UID": str(owner), "GID": str(owner)}},
        "init": True,
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": "30s",
    }


def _gpus(node: Node) -> dict[str, Any]:
    wanted = containers.gpus(node)
    if wanted is None:
        return {}
    which: dict[str, Any] = {"device_ids": wanted} if wanted else {"count": "all"}
    device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _health(port: int) -> dict[str, Any]:
    often = {"interval": "15s", "timeout": "5s", "retries": 6, "start_period": "90s"}
    return {"test": ["CMD", *containers.port_check(port)], **often}


def _server_config() -> list[dict[str, Any]]:
    about = _mount("./config/server.json", f"{containers.HOME}/server.json")
    return [
        about,
        *(
            _mount(f"./config/{n}", f"{containers.CONFIG}/{n}")
            for n in ("ca.crt", "server.crt", "nodes.json", "operators.json")
        ),
    ]


def _home(volume: str) -> dict[str, Any]:
    return {"type": "volume", "source": volume, "target": containers.HOME}


def _mount(source: str, target: str) -> dict[str, Any]:
    """A read-only bind mount; a missing source is an error, not a new empty folder."""
    return {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": True,
        "bind": {"create_host_path": False},
    }


def _escaped(value: Any) -> Any:
    """With every $ doubled, which Compose would take for a variable."""
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
