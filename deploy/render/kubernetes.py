"""Kubernetes: a namespace of its own, a StatefulSet for the server and one for each node, each with its volume and key."""

import hashlib
import re
from base64 import b64encode
from typing import Any

from deploy import belongings, pki
from deploy.inventory import Inventory, Machine, Node
from deploy.render import containers as inside
from deploy.render import yaml
from deploy.render.output import File, fill, image, operator, secret
from fedsim.errors import ConfigError

REMARK = "The federation in its pods: `fedsim deploy status|run|logs --dir`. kubectl starts and stops it."
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # a pod's name and labels add to it, 63 is the limit
STORAGE = "10Gi"
REQUESTS = {"server": {"cpu": "500m", "memory": "1Gi"}, "node": {"cpu": "1", "memory": "2Gi"}}
GPU = "nvidia.com/gpu"
RESOURCES = ("namespace.yaml", "config.yaml", "secrets.yaml", "network.yaml", "server.yaml", "nodes.yaml")
Tree = dict[str, Any]


def files(inventory: Inventory) -> dict[str, File]:
    _check_names(inventory)
    space, names = inventory.name, [node.name for node in inventory.nodes]
    machines = {
        name: Machine(via=f"kubectl -n {space} exec -i {_name(name)}-0 --", python=inside.PYTHON, home=inside.HOME)
        for name in ("server", *names)
    }
    return {
        "README.txt": fill("kubernetes.txt", name=space, image=inside.IMAGE, user=inside.USER),
        "federation.toml": operator(inventory, machines, REMARK),
        "kustomization.yaml": File.of(yaml.dump(_kustomization())),
        "namespace.yaml": File.of(yaml.dump(_namespace(inventory))),
        "config.yaml": File.of(yaml.dump(*_configs(inventory))),
        "secrets.yaml": secret(yaml.dump(*_secrets(inventory)).encode()),
        "network.yaml": File.of(yaml.dump(*_policies(inventory))),
        "server.yaml": File.of(yaml.dump(*_server(inventory))),
        "nodes.yaml": File.of(yaml.dump(_nodes_service(space), *(_node(inventory, node) for node in inventory.nodes))),
        **image(),
    }


def _check_names(inventory: Inventory) -> None:
    for what, name in [("federation", inventory.name), *(("node", node.name) for node in inventory.nodes)]:
        if not LABEL.fullmatch(name):
            raise ConfigError(
                f"the {what}'s name {name!r} does not suit Kubernetes: 40 characters at most, and no dash at the end"
            )


def _kustomization() -> Tree:
    name, tag = inside.IMAGE.split(":")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(RESOURCES),
        "images": [{"name": name, "newName": name, "newTag": tag}],
    }


def _namespace(inventory: Inventory) -> Tree:
    """Pods as restricted as Kubernetes knows, unless a silo's data lies on the machine itself."""
    level = "privileged" if any(node.data for node in inventory.nodes) else "restricted"
    labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inventory.name, "labels": labels}}


def _configs(inventory: Inventory) -> list[Tree]:
    authority = (inventory.secrets / pki.CA).read_text()
    server = {
        "server.json": inside.text(inside.about_server(inventory)),
        "ca.crt": authority,
        "server.crt": (inventory.secrets / pki.SERVER).read_text(),
        "nodes.json": inside.text(belongings.public_keys(inventory)),
    }
    nodes = {n.name: {"node.json": inside.text(inside.about_node(inventory, n))} for n in inventory.nodes}
    everyone = {"server": server, **{name: {**own, "ca.crt": authority} for name, own in nodes.items()}}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(inventory.name, name), "data": data}
        for name, data in everyone.items()
    ]


def _secrets(inventory: Inventory) -> list[Tree]:
    keys = {"server": {"server.key": inventory.secrets / pki.SERVER_KEY}}
    keys |= {node.name: {"node.key": pki.node_key(inventory.secrets, node.name)} for node in inventory.nodes}
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
    """Nodes reach the fleet port; nobody reaches the control port, or anything of a node."""
    nodes = [{"podSelector": {"matchLabels": {"fedsim/role": "node"}}}]
    fleet = [{"protocol": "TCP", "port": inventory.server.fleet_port}]
    rules: dict[str, list[Tree]] = {"server": [{"from": nodes, "ports": fleet}], "node": []}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": f"fedsim-{role}-ingress", "namespace": inventory.name},
            "spec": {
                "podSelector": {"matchLabels": {"fedsim/role": role}},
                "policyTypes": ["Ingress"],
                "ingress": ingress,
            },
        }
        for role, ingress in rules.items()
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
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", inside.REGISTER]}}},
        "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 5, "failureThreshold": 36},
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 10},
        "livenessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 20, "failureThreshold": 6},
        "resources": {"requests": REQUESTS["server"]},
    }
    print_ = _print(inside.about_server(inventory), belongings.public_keys(inventory), inventory.secrets / pki.SERVER)
    return [service, _stateful(inventory.name, "server", pki.INSIDE, own, print_)]


def _nodes_service(space: str) -> Tree:
    """Gives node pods their names. No port: nodes call the server, never the other way round."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "fedsim-nodes", "namespace": space},
        "spec": {"clusterIP": "None", "selector": {"fedsim/role": "node"}},
    }


def _node(inventory: Inventory, node: Node) -> Tree:
    """Its agent starts again what ends, so there is nothing for a liveness probe to do."""
    probe = {"exec": {"command": inside.knock(node.port)}, "timeoutSeconds": 5}
    wanted = inside.gpus(node)
    limits = {} if wanted is None else {"limits": {GPU: len(wanted) or 1 + int(node.device.partition(":")[2] or 0)}}
    own = {
        "startupProbe": {**probe, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 20},
        "resources": {"requests": REQUESTS["node"], **limits},
    }
    public = pki.node_public(inventory.secrets, node.name)
    print_ = _print(inside.about_node(inventory, node), {}, public)
    tree = _stateful(inventory.name, node.name, "fedsim-nodes", own, print_)
    return _with_data(tree, node) if node.data else tree


def _stateful(space: str, name: str, service: str, own: Tree, print_: str) -> Tree:
    file = "server.json" if name == "server" else "node.json"
    container = {
        "name": "agent",
        "image": inside.IMAGE,
        **own,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "home", "mountPath": inside.HOME},
            {"name": "config", "mountPath": f"{inside.HOME}/{file}", "subPath": file, "readOnly": True},
            {"name": "config", "mountPath": inside.CONFIG, "readOnly": True},
            {"name": "key", "mountPath": inside.SECRETS, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    user = inside.USER
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # so that someone collects processes whose parent is gone
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
                "metadata": {"labels": _labels(name), "annotations": {"fedsim/config": print_}},
                "spec": pod,
            },
            "volumeClaimTemplates": [claim],
        },
    }


def _with_data(tree: Tree, node: Node) -> Tree:
    """Its data lies on a machine of the cluster: there it has to run."""
    pod = tree["spec"]["template"]["spec"]
    source = inside.data_outside(node)
    kind = "File" if source.endswith(".npz") else "Directory"
    pod["volumes"].append({"name": "data", "hostPath": {"path": source, "type": kind}})
    pod["containers"][0]["volumeMounts"].append(
        {"name": "data", "mountPath": inside.data_inside(node), "readOnly": True}
    )
    if node.host not in pki.LOOPBACK:
        pod["nodeSelector"] = {"kubernetes.io/hostname": node.host}
    return tree


def _name(name: str) -> str:
    return pki.INSIDE if name == "server" else f"fedsim-node-{name}"


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": _name(name), "fedsim/role": "server" if name == "server" else "node"}


def _metadata(space: str, name: str) -> Tree:
    return {"name": _name(name), "namespace": space, "labels": _labels(name)}


def _print(*parts: Any) -> str:
    """Changes with what a pod reads only when it starts, so that applying a change starts it again."""
    known = [part.read_text() if hasattr(part, "read_text") else part for part in parts]
    return hashlib.sha256(inside.text(known).encode()).hexdigest()[:16]
