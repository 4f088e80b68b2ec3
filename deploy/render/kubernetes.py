"""Files for Kubernetes: a namespace, and a StatefulSet for the server and each node, with its volume and key."""

import hashlib
import re
from base64 import b64encode
from pathlib import PurePosixPath
from typing import Any

from fedsim.deploy import machine_files, pki
from fedsim.deploy.inventory import Inventory, Machine, Node
from fedsim.deploy.machine_config import NODE, SERVER, to_json
from fedsim.deploy.render import containers
from fedsim.deploy.render.output import File, base_image_note, from_template, image_files, operator_inventory, secret
from fedsim.deploy.render.yaml_text import to_yaml
from fedsim.errors import ConfigError

REMARK = "The federation in its pods: `fedsim deploy status|run|logs --dir`. kubectl starts and stops it."
# At most 40 characters: names of pods and labels add to it, and 63 is the limit.
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
STORAGE = "10Gi"
DATA_FILES = (".npz", ".csv", ".tsv", ".parquet")
DATA_STORAGE = "1Gi"  # has to be told, and limits nothing
REQUESTS = {"server": {"cpu": "500m", "memory": "1Gi"}, "node": {"cpu": "1", "memory": "2Gi"}}
GPU = "nvidia.com/gpu"
RESOURCES = ("namespace.yaml", "config.yaml", "secrets.yaml", "network.yaml", "server.yaml", "nodes.yaml")
Tree = dict[str, Any]


def files(inventory: Inventory, base: str = "") -> dict[str, File]:
    _check_names(inventory)
    space, names = inventory.name, [node.name for node in inventory.managed]
    machines = {
        name: Machine(
            via=f"kubectl -n {space} exec -i {_name(name)}-0 --", python=containers.PYTHON, home=containers.HOME
        )
        for name in ("server", *names)
    }
    return {
        "README.txt": from_template(
            "kubernetes.txt", name=space, image=containers.IMAGE, user=containers.USER, base=base_image_note(base)
        ),
        "federation.toml": operator_inventory(inventory, machines, REMARK),
        "kustomization.yaml": File.of(to_yaml(_kustomization(inventory))),
        "namespace.yaml": File.of(to_yaml(_namespace(inventory))),
        "config.yaml": File.of(to_yaml(*_configs(inventory))),
        "secrets.yaml": secret(to_yaml(*_secrets(inventory)).encode()),
        "network.yaml": File.of(to_yaml(*_policies(inventory))),
        "server.yaml": File.of(to_yaml(*_server(inventory))),
        **_data_files(inventory),
        "nodes.yaml": File.of(to_yaml(_nodes_service(space), *(_node(inventory, node) for node in inventory.managed))),
        **image_files(base),
    }


def _check_names(inventory: Inventory) -> None:
    for what, name in [("federation", inventory.name), *(("node", node.name) for node in inventory.managed)]:
        if not LABEL.fullmatch(name):
            raise ConfigError(
                f"the {what}'s name {name!r} does not suit Kubernetes: 40 characters at most, and no dash at the end"
            )


def _kustomization(inventory: Inventory) -> Tree:
    name, tag = containers.IMAGE.split(":")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*RESOURCES, *_data_files(inventory)],
        "images": [{"name": name, "newName": name, "newTag": tag}],
    }


def _namespace(inventory: Inventory) -> Tree:
    """No pod needs a privilege, so the `restricted` pod security standard is enforced."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inventory.name, "labels": labels}}


def _configs(inventory: Inventory) -> list[Tree]:
    ca, trust = ((inventory.secrets / name).read_text() for name in (pki.CA, pki.TRUST))
    server = {
        SERVER: to_json(containers.server_config(inventory)),
        "ca.crt": ca,
        "server.crt": (inventory.secrets / pki.SERVER).read_text(),
        "nodes.json": machine_files.public_keys(inventory),
        machine_files.OPERATORS: machine_files.operators_file(inventory).decode(),
    }
    nodes = {n.name: {NODE: to_json(containers.node_config(inventory, n))} for n in inventory.managed}
    machines = {"server": server, **{name: {**own, "ca.crt": trust} for name, own in nodes.items()}}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(inventory.name, name), "data": data}
        for name, data in machines.items()
    ]


def _secrets(inventory: Inventory) -> list[Tree]:
    keys = {"server": {"server.key": inventory.secrets / pki.SERVER_KEY}}
    keys |= {node.name: {"node.key": pki.node_key(inventory.secrets, node.name)} for node in inventory.managed}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(inventory.name, name),
            "type": "Opaque",
            "data": {file: b64encode(path.read_bytes()).decode() for file, path in own.items()},
        }
        for name, own in keys.items()
    ]


def _policies(inventory: Inventory) -> list[Tree]:
    """Only nodes can reach the fleet port; the control port and the nodes cannot be reached at all. Nodes reach the server
    and the cluster's name service, and the server nobody."""
    nodes, server = ({"podSelector": {"matchLabels": {"fedsim/role": role}}} for role in ("node", "server"))
    fleet = [{"protocol": "TCP", "port": inventory.server.fleet_port}]
    names = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    name_service = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    rules: dict[str, tuple[list[Tree], list[Tree]]] = {
        "server": ([{"from": [nodes], "ports": fleet}], []),
        "node": ([], [{"to": [server], "ports": fleet}, {"to": [names], "ports": name_service}]),
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": f"fedsim-{role}", "namespace": inventory.name},
            "spec": {
                "podSelector": {"matchLabels": {"fedsim/role": role}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": ingress,
                "egress": egress,
            },
        }
        for role, (ingress, egress) in rules.items()
    ]


def _server(inventory: Inventory) -> list[Tree]:
    port = inventory.server.fleet_port
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(inventory.name, "server"),
        "spec": {"selector": _labels("server"), "ports": [{"name": "fleet", "port": port, "targetPort": port}]},
    }
    own = {
        "ports": [{"name": "fleet", "containerPort": port}],
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", containers.REGISTER_KEYS]}}},
        "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 5, "failureThreshold": 36},
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 10},
        "livenessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 20, "failureThreshold": 6},
        "resources": {"requests": REQUESTS["server"]},
    }
    config, certificate = to_json(containers.server_config(inventory)), (inventory.secrets / pki.SERVER).read_text()
    config_hash = _config_hash(config, machine_files.public_keys(inventory), certificate)
    return [service, _stateful_set(inventory.name, "server", pki.CONTAINER_HOST, own, config_hash)]


def _nodes_service(space: str) -> Tree:
    """Gives the pods of nodes their names; without ports, because only nodes open connections."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "fedsim-nodes", "namespace": space},
        "spec": {"clusterIP": "None", "selector": {"fedsim/role": "node"}},
    }


def _node(inventory: Inventory, node: Node) -> Tree:
    """Without a liveness probe: the agent restarts processes that end."""
    probe = {"exec": {"command": containers.port_check(node.port)}, "timeoutSeconds": 5}
    wanted = containers.gpus(node)
    limits = {} if wanted is None else {"limits": {GPU: len(wanted) or 1 + int(node.device.partition(":")[2] or 0)}}
    own = {
        "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 20},
        "resources": {"requests": REQUESTS["node"], **limits},
    }
    public_key = pki.node_public(inventory.secrets, node.name).read_text()
    config_hash = _config_hash(to_json(containers.node_config(inventory, node)), public_key)
    tree = _stateful_set(inventory.name, node.name, "fedsim-nodes", own, config_hash)
    return _with_data(tree, node) if node.data else tree


def _stateful_set(space: str, name: str, service: str, own: Tree, config_hash: str) -> Tree:
    file = "server.json" if name == "server" else "node.json"
    container = {
        "name": "agent",
        "image": containers.IMAGE,
        **own,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "home", "mountPath": containers.HOME},
            {"name": "config", "mountPath": f"{containers.HOME}/{file}", "subPath": file, "readOnly": True},
            {"name": "config", "mountPath": containers.CONFIG, "readOnly": True},
            {"name": "key", "mountPath": containers.SECRETS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    user = containers.USER
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # so that processes without a parent are reaped
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": _name(name)}},
            {"name": "key", "secret": {"secretName": _name(name), "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    claim = {
        "metadata": {"name": "home"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": STORAGE}}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(space, name),
        "spec": {
            "replicas": 1,
            "serviceName": service,
            "selector": {"matchLabels": _labels(name)},
            "template": {
                "metadata": {"labels": _labels(name), "annotations": {"fedsim/config": config_hash}},
                "spec": pod,
            },
            "volumeClaimTemplates": [claim],
        },
    }


def _with_data(tree: Tree, node: Node) -> Tree:
    """Mounts the node's data, read-only: of a file nothing but the file itself."""
    pod = tree["spec"]["template"]["spec"]
    _, file = _data_place(node)
    claim = {"claimName": _data_name(node), "readOnly": True}
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": claim})
    mount = {"name": "data", "mountPath": containers.data_in_container(node), "readOnly": True}
    pod["containers"][0]["volumeMounts"].append({**mount, **({"subPath": file} if file else {})})
    return tree


def _data_files(inventory: Inventory) -> dict[str, File]:
    """`data.yaml`, if a node has data on its machine. A pod that mounted the path itself would need a privilege, and the
    namespace with it; a PersistentVolume is made by an administrator of the cluster, for this claim alone."""
    found = [each for node in inventory.managed if node.data for each in _data_volume(inventory.name, node)]
    return {"data.yaml": File.of(to_yaml(*found))} if found else {}


def _data_volume(space: str, node: Node) -> list[Tree]:
    folder, _ = _data_place(node)
    name, volume = _data_name(node), f"{space}-{_data_name(node)}"
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    host = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.host]}]}
    where = {"nodeAffinity": {"required": {"nodeSelectorTerms": [host]}}} if node.host not in pki.LOOPBACK else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": _labels(node.name)},
            "spec": {
                **common,
                "capacity": {"storage": DATA_STORAGE},
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": space, "name": name},
                "hostPath": {"path": folder, "type": "Directory"},
                **where,
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": space, "labels": _labels(node.name)},
            "spec": {**common, "volumeName": volume, "resources": {"requests": {"storage": DATA_STORAGE}}},
        },
    ]


def _data_place(node: Node) -> tuple[str, str]:
    """The folder on the machine, and the file in it; empty: the folder itself is the data."""
    source = PurePosixPath(containers.data_on_host(node))
    return (str(source.parent), source.name) if source.suffix in DATA_FILES else (str(source), "")


def _data_name(node: Node) -> str:
    return f"{_name(node.name)}-data"


def _name(name: str) -> str:
    return pki.CONTAINER_HOST if name == "server" else f"fedsim-node-{name}"


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": _name(name), "fedsim/role": "server" if name == "server" else "node"}


def _metadata(space: str, name: str) -> Tree:
    return {"name": _name(name), "namespace": space, "labels": _labels(name)}


def _config_hash(*texts: str) -> str:
    """A hash of what a pod reads only when it starts; as an annotation it makes `kubectl apply` restart the pod."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
