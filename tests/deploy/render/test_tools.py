"""What `fedsim deploy render` writes is accepted by the tools it is for, and read by them as it was meant."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory
from tests.system_tools import BIN, docker_compose, program

from .example import DATA, NODES, documents, of_kind, run


def composed(folder: Path) -> Any:
    """As Docker Compose understands it."""
    command = docker_compose()
    assert command is not None
    return json.loads(run(*command, "config", "--format", "json", cwd=folder))


@pytest.mark.needs("docker-compose")
def test_docker_compose_accepts_it_and_reads_what_was_meant(rendered: dict[str, Path], inventory: Inventory) -> None:
    found = composed(rendered["compose"])
    services = found["services"]
    assert set(services) == {"server", "register_keys", *NODES}
    (data,) = [mount for mount in services["no"]["volumes"] if mount["target"].startswith("/data")]
    assert data["source"].replace("$$", "$") == DATA  # `config` writes $ as it must be written
    assert data["read_only"] is True
    assert found["secrets"]["7"]["file"] == str(rendered["compose"] / "secrets/nodes/7.key")
    assert services["server"]["networks"]["federation"]["aliases"] == [pki.CONTAINER_HOST]
    assert "ports" not in services["server"]  # open to its own network alone
    for name in ("server", *NODES):
        service = services[name]
        assert service["healthcheck"]["test"]
        assert service["restart"] == "unless-stopped"
        assert {(v["source"], v["target"]) for v in service["volumes"] if v["type"] == "volume"} == {
            (name, "/var/lib/fedsim")
        }
        assert [secret["source"] for secret in service["secrets"]] == [name]
    assert "secrets" not in services["register_keys"]


def test_the_compose_file_follows_the_compose_specification(rendered: dict[str, Path]) -> None:
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", rendered["compose"] / "compose.yaml")


@pytest.mark.needs("hadolint")
@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_hadolint_finds_nothing_in_the_dockerfile(rendered: dict[str, Path], kind: str) -> None:
    assert run(str(program("hadolint")), rendered[kind] / "Dockerfile") == ""
    ignored = (rendered[kind] / ".dockerignore").read_text().split()
    assert ignored == ["*", "!requirements.txt", "!fedsim_flower-*.whl"]  # no key can get into an image


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("name", ["server/fedsim-server", "no/fedsim-node-no"])
def test_systemd_accepts_the_units(rendered: dict[str, Path], name: str) -> None:
    unit = rendered["systemd"] / f"{name}.service"
    analyze = "systemd-analyze"
    assert run(analyze, "verify", "--man=no", unit) == ""  # it also looks for the program, in a folder with odd letters
    run(analyze, "security", "--offline=true", "--threshold=30", unit)  # of 100: how much a unit could do


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_schemas_accept_every_document(rendered: dict[str, Path], version: str) -> None:
    found = documents(rendered["kubernetes"])
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
    assert {document["kind"] for document in found} == {
        "Namespace",
        "ConfigMap",
        "Secret",
        "NetworkPolicy",
        "Service",
        "StatefulSet",
        "PersistentVolume",
        "PersistentVolumeClaim",
    }


def test_a_schema_check_would_notice_a_mistake(rendered: dict[str, Path]) -> None:
    server = of_kind(documents(rendered["kubernetes"]), "StatefulSet")["fedsim-server"]
    server["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(server, "1.37", strict=True)


def test_the_install_scripts_are_shell(rendered: dict[str, Path], inventory: Inventory) -> None:
    for name in ("server", *NODES):
        run("sh", "-n", rendered["systemd"] / name / "install.sh")
    script = (rendered["systemd"] / "server" / "install.sh").read_text()
    home = next(line for line in script.splitlines() if line.startswith("home="))
    assert run("sh", "-c", f'{home}; printf %s "$home"') == inventory.server.home
