"""What the files say: names, GPUs, who reaches whom, and how little a pod may do."""

import json
from pathlib import Path

import yaml

from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory

from .example import DATA, NODES, documents, of_kind


def test_containers_call_the_server_by_a_name_of_its_certificate(
    rendered: dict[str, Path], inventory: Inventory
) -> None:
    names = pki.valid_names(pki.read_certificate(rendered["compose"] / "config/server.crt"))
    maps = of_kind(documents(rendered["kubernetes"]), "ConfigMap")
    for node in inventory.nodes:
        texts = (
            (rendered["compose"] / f"config/nodes/{node.name}.json").read_text(),
            maps[f"fedsim-node-{node.name}"]["data"]["node.json"],
        )
        for about in map(json.loads, texts):
            host, _, port = about["superlink"].rpartition(":")
            assert host in names
            assert (int(port), about["port"]) == (9392, node.port)
            assert about["gpu"] == ""  # what it sees is what it was given
            assert about["config"]["partition-id"] == node.partition_id
    assert json.loads(maps["fedsim-node-no"]["data"]["node.json"])["config"]["data"] == "/data/%h.npz"
    services = of_kind(documents(rendered["kubernetes"]), "Service")
    assert pki.CONTAINER_HOST in services
    own = json.loads((rendered["systemd"] / "no/home/node.json").read_text())
    assert (own["superlink"], own["config"]["data"]) == ("192.0.2.1:9392", DATA)


def test_gpus_only_for_those_who_ask(rendered: dict[str, Path]) -> None:
    services = yaml.safe_load((rendered["compose"] / "compose.yaml").read_text())["services"]
    devices = {
        name: service["deploy"]["resources"]["reservations"]["devices"]
        for name, service in services.items()
        if "deploy" in service
    }
    nvidia = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices == {"gpus": [{**nvidia, "device_ids": ["1", "3"]}], "last": [{**nvidia, "count": "all"}]}
    limits = {
        name: tree["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits")
        for name, tree in of_kind(documents(rendered["kubernetes"]), "StatefulSet").items()
    }
    two = {"nvidia.com/gpu": 2}  # cuda:1 is the second of two
    assert {name: limit for name, limit in limits.items() if limit} == {
        "fedsim-node-gpus": two,
        "fedsim-node-last": two,
    }
    units = {name: next((rendered["systemd"] / name).glob("*.service")).read_text() for name in ("server", *NODES)}
    assert {name for name, text in units.items() if "PrivateDevices=yes" in text} == {"server", "no"}
    assert {name for name, text in units.items() if "DeviceAllow=char-nvidia-uvm rw" in text} == {"7", "gpus", "last"}


def test_only_nodes_reach_the_fleet_port_and_nobody_the_control_port(rendered: dict[str, Path]) -> None:
    found = documents(rendered["kubernetes"])
    rules = {
        policy["spec"]["podSelector"]["matchLabels"]["fedsim/role"]: policy["spec"]["ingress"]
        for policy in of_kind(found, "NetworkPolicy").values()
    }
    nodes = [{"podSelector": {"matchLabels": {"fedsim/role": "node"}}}]
    assert rules == {"server": [{"from": nodes, "ports": [{"protocol": "TCP", "port": 9392}]}], "node": []}
    roles = {
        name: tree["spec"]["template"]["metadata"]["labels"]["fedsim/role"]
        for name, tree in of_kind(found, "StatefulSet").items()
    }
    assert roles == {"fedsim-server": "server", **{f"fedsim-node-{name}": "node" for name in NODES}}


def test_pods_are_as_restricted_as_can_be(rendered: dict[str, Path]) -> None:
    for tree in of_kind(documents(rendered["kubernetes"]), "StatefulSet").values():
        pod = tree["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "readinessProbe" in pod["containers"][0]
