"""Rendered private keys: no machine gets the key of another one, and none gets the key of the CA."""

from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory
from fedsim.deploy.render import KINDS

from .example import NODES, documents, of_kind


def private_keys(inventory: Inventory) -> dict[str, bytes]:
    keys = {"ca": inventory.secrets / pki.CA_KEY, "server": inventory.secrets / pki.SERVER_KEY}
    keys |= {name: pki.node_key(inventory.secrets, name) for name in NODES}
    return {name: path.read_bytes() for name, path in keys.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_files_with_a_private_key_are_readable_by_their_owner_only_and_none_has_the_key_of_the_ca(
    rendered: dict[str, Path], inventory: Inventory, kind: str
) -> None:
    keys, held = private_keys(inventory), set[str]()
    for path in (p for p in rendered[kind].rglob("*") if p.is_file()):
        content = path.read_bytes()
        inside = {name for name, key in keys.items() if key in content or b64encode(key) in content}
        assert path.stat().st_mode & 0o777 == (0o600 if inside else 0o644), path
        assert ("PRIVATE KEY" in content.decode(errors="replace")) <= bool(inside), path
        held |= inside
    assert held == {"server", *NODES}
    assert (rendered[kind] / ".gitignore").read_text() == "*\n"


def test_a_machines_folder_holds_its_own_key_alone(rendered: dict[str, Path], inventory: Inventory) -> None:
    keys = private_keys(inventory)
    for name in ("server", *NODES):
        contents = [path.read_bytes() for path in (rendered["systemd"] / name).rglob("*") if path.is_file()]
        assert {key for key, pem in keys.items() if any(pem in content for content in contents)} == {name}
        files = {path.name for path in (rendered["systemd"] / name / "home").iterdir()}
        server = {"server.json", "server.key", "server.crt", "ca.crt", "nodes.json", "operators.json"}
        assert files == (server if name == "server" else {"node.json", "node.key", "ca.crt"})


def test_a_pod_gets_its_own_key_alone(rendered: dict[str, Path], inventory: Inventory) -> None:
    keys, found = private_keys(inventory), documents(rendered["kubernetes"])
    secrets, sets = of_kind(found, "Secret"), of_kind(found, "StatefulSet")
    for name in ("server", *NODES):
        full = f"fedsim-{name}" if name == "server" else f"fedsim-node-{name}"
        assert [b64decode(value) for value in secrets[full]["data"].values()] == [keys[name]]
        volumes = sets[full]["spec"]["template"]["spec"]["volumes"]
        assert [v["secret"]["secretName"] for v in volumes if "secret" in v] == [full]
