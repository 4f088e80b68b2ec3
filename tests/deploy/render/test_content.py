"""What the files say: names, GPUs, who reaches whom, and how little a pod may do."""

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml

from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory
from fedsim.deploy.render import render, requirements
from fedsim.errors import ConfigError

from .example import DATA, NODES, documents, make, of_kind


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


def test_pods_reach_and_are_reached_by_those_alone_whom_they_need(rendered: dict[str, Path]) -> None:
    found = documents(rendered["kubernetes"])
    rules = {
        policy["spec"]["podSelector"]["matchLabels"]["fedsim/role"]: policy["spec"]
        for policy in of_kind(found, "NetworkPolicy").values()
    }
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in rules.values())
    nodes, server = ([{"podSelector": {"matchLabels": {"fedsim/role": role}}}] for role in ("node", "server"))
    fleet = [{"protocol": "TCP", "port": 9392}]
    assert (rules["server"]["ingress"], rules["server"]["egress"]) == ([{"from": nodes, "ports": fleet}], [])
    to_server, to_names = rules["node"]["egress"]
    assert (rules["node"]["ingress"], to_server) == ([], {"to": server, "ports": fleet})
    assert {port["port"] for port in to_names["ports"]} == {53}
    assert to_names["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
    roles = {
        name: tree["spec"]["template"]["metadata"]["labels"]["fedsim/role"]
        for name, tree in of_kind(found, "StatefulSet").items()
    }
    assert roles == {"fedsim-server": "server", **{f"fedsim-node-{name}": "node" for name in NODES}}


def test_data_of_a_machine_needs_no_privilege_in_the_namespace(rendered: dict[str, Path]) -> None:
    found = documents(rendered["kubernetes"])
    (space,) = of_kind(found, "Namespace").values()
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (volume,), (claim,) = (of_kind(found, f"PersistentVolume{kind}").values() for kind in ("", "Claim"))
    assert volume["spec"]["hostPath"]["path"] == str(Path(DATA).parent)
    assert volume["spec"]["claimRef"] == {"namespace": "trial", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    for name, tree in of_kind(found, "StatefulSet").items():
        pod = tree["spec"]["template"]["spec"]
        kinds = {kind for each in pod["volumes"] for kind in each if kind != "name"}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}, "all that `restricted` allows"
        mounts = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "data"]
        if name == "fedsim-node-no":
            (mount,) = mounts
            assert (mount["mountPath"], mount["subPath"], mount["readOnly"]) == ("/data/%h.npz", "%h.npz", True)
        else:
            assert mounts == []


def test_units_see_no_home_folders_and_have_limits(rendered: dict[str, Path], tmp_path: Path) -> None:
    for name in ("server", *NODES):
        text = next((rendered["systemd"] / name).glob("*.service")).read_text().splitlines()
        assert {"MemoryMax=80%", "TasksMax=4096", "ProtectHome=yes", "OOMPolicy=continue"} <= set(text)
    inside = make(tmp_path, home="/home/fed/a b", python="/root/venv/bin/python", data="/home/fed/50%:silo.npz")
    list(render(inside, "systemd", tmp_path / "out"))
    server = (tmp_path / "out/server/fedsim-server.service").read_text()
    assert 'ProtectHome=tmpfs\nBindPaths="/home/fed/a b"\nBindReadOnlyPaths="/root/venv"\n' in server
    node = (tmp_path / "out/no/fedsim-node-no.service").read_text()
    assert 'BindReadOnlyPaths="/root/venv"\nBindReadOnlyPaths="/home/fed/50%%\\\\:silo.npz"\n' in node


def test_packages_and_images_are_pinned_by_hash(
    inventory: Inventory, rendered: dict[str, Path], tmp_path: Path
) -> None:
    pinned = {name: version.partition("+")[0] for name, version in requirements.needed().items()}
    for folder in (rendered["compose"], rendered["kubernetes"], rendered["systemd"] / "server"):
        text = (folder / "requirements.txt").read_text()
        entries = [each.split() for each in text.replace("\\\n", " ").splitlines() if not each.startswith("#")]
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", digest) for _, *found in entries for digest in found)
        assert all(found for _, *found in entries)
        *others, own = entries
        assert dict(name.split("==") for name, *_ in others) == pinned
        (wheel,) = folder.glob("*.whl")
        assert own == [f"./{wheel.name}", f"--hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"]
    installs = [(rendered["compose"] / "Dockerfile"), (rendered["systemd"] / "no/install.sh")]
    assert all("--require-hashes" in path.read_text() for path in installs)
    assert "is not: python:3.11-slim may be another one tomorrow" in (rendered["compose"] / "README.txt").read_text()
    base = f"python:3.11-slim@sha256:{'ab' * 32}"
    list(render(inventory, "compose", tmp_path / "out", base))
    assert f"FROM {base}\n" in (tmp_path / "out/Dockerfile").read_text()
    assert f"So is the image that it is built on:\n  {base}" in (tmp_path / "out/README.txt").read_text()
    with pytest.raises(ConfigError, match="is not pinned: give its digest"):
        list(render(inventory, "kubernetes", tmp_path / "other", "python:3.11-slim"))


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
