"""`fedsim deploy init`: certificates and keys are created once, kept, and renewed on request."""

import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from fedsim.deploy import pki
from fedsim.deploy.inventory import read
from fedsim.deploy.setup import init
from fedsim.errors import ConfigError, FedsimError


def make(
    folder: Path, *, host: str = "127.0.0.1", nodes: int = 2, add: list[str] | None = None, rotate: bool = False
) -> list[str]:
    return list(init(folder, "lab", host, nodes, add or [], rotate))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_second_init_changes_nothing(tmp_path: Path) -> None:
    assert make(tmp_path)
    before = content(tmp_path)
    assert make(tmp_path) == []
    assert content(tmp_path) == before


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    make(tmp_path)
    private = list((tmp_path / "secrets").rglob("*.key"))
    assert len(private) == 5  # CA, operator, server, two nodes
    assert {p.stat().st_mode & 0o777 for p in private} == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_messages_contain_no_secret(tmp_path: Path) -> None:
    told = "\n".join(make(tmp_path))
    for key in (tmp_path / "secrets").rglob("*.key"):
        body = key.read_text().splitlines()[1]
        assert body not in told


def test_the_certificate_serves_the_server_under_its_names(tmp_path: Path) -> None:
    make(tmp_path, host="fl.example.org")
    names = pki.valid_names(pki.read_certificate(tmp_path / "secrets" / pki.SERVER))
    assert {"fl.example.org", "localhost", "127.0.0.1"} <= set(names)
    verify = ["openssl", "verify", "-CAfile", str(tmp_path / "secrets" / pki.CA), "-verify_hostname", "fl.example.org"]
    subprocess.run([*verify, str(tmp_path / "secrets" / pki.SERVER)], check=True, capture_output=True)
    ssl.create_default_context().load_cert_chain(
        tmp_path / "secrets" / pki.SERVER, tmp_path / "secrets" / pki.SERVER_KEY
    )


def test_a_new_address_gets_a_new_certificate_of_the_same_ca(tmp_path: Path) -> None:
    make(tmp_path)
    ca = (tmp_path / "secrets" / pki.CA).read_bytes()
    file = tmp_path / "federation.toml"
    file.write_text(file.read_text().replace('host = "127.0.0.1"', 'host = "198.51.100.7"', 1))
    assert make(tmp_path) == ["renewed the server's certificate for 198.51.100.7"]
    assert "198.51.100.7" in pki.valid_names(pki.read_certificate(tmp_path / "secrets" / pki.SERVER))
    assert (tmp_path / "secrets" / pki.CA).read_bytes() == ca


def test_rotation_renews_everything_but_the_ca(tmp_path: Path) -> None:
    make(tmp_path)
    before = content(tmp_path / "secrets")
    make(tmp_path, rotate=True)
    after = content(tmp_path / "secrets")
    changed = {name for name in after if before[name] != after[name]}
    kept = {"ca.crt", "ca.key", ".gitignore", "operators/admin.key", "operators/admin.pub"}
    assert changed == set(after) - kept


def test_nodes_are_added_and_removed(tmp_path: Path) -> None:
    make(tmp_path)
    before = content(tmp_path / "secrets")
    assert any("created the key of ward-3" in line for line in make(tmp_path, add=["ward-3"]))
    assert make(tmp_path, add=["ward-3"]) == [f"node ward-3 is in {tmp_path / 'federation.toml'} already"]
    assert [n.name for n in read(tmp_path / "federation.toml").nodes] == ["node-0", "node-1", "ward-3"]
    after = content(tmp_path / "secrets")
    assert {name: after[name] for name in before} == before
    file = tmp_path / "federation.toml"
    file.write_text(file.read_text()[: file.read_text().rindex("[[node]]")])
    assert make(tmp_path) == ["removed the key of ward-3, which is no longer a node"]
    assert not (tmp_path / "secrets" / "nodes" / "ward-3.key").exists()


def test_an_impossible_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="small letters"):
        make(tmp_path, add=["Ward 3"])


def test_openssl_refuses_an_expired_certificate(tmp_path: Path) -> None:
    make(tmp_path)
    pki.issue_server_certificate(tmp_path / "secrets", ["127.0.0.1"], timedelta(days=-1))
    verify = [
        "openssl",
        "verify",
        "-CAfile",
        str(tmp_path / "secrets" / pki.CA),
        str(tmp_path / "secrets" / pki.SERVER),
    ]
    assert "expired" in subprocess.run(verify, capture_output=True, text=True, check=False).stderr


def test_a_key_and_its_public_half_must_belong_together(tmp_path: Path) -> None:
    """As when an old key was restored from a backup: the server would refuse the node."""
    make(tmp_path)
    secrets = tmp_path / "secrets"
    pki.check_complete(secrets, ["node-0", "node-1"])
    old = pki.node_key(secrets, "node-1").read_bytes()
    pki.create_node_key(secrets, "node-1")
    pki.node_key(secrets, "node-1").write_bytes(old)
    with pytest.raises(FedsimError, match=r"node-1\.pub does not belong to .*node-1\.key: remove the key and run"):
        pki.check_complete(secrets, ["node-0", "node-1"])
    pki.node_key(secrets, "node-1").write_text("no key")
    with pytest.raises(FedsimError, match=r"node-1\.key is not the key of a node"):
        pki.check_complete(secrets, ["node-0", "node-1"])
    pki.node_key(secrets, "node-1").unlink()
    make(tmp_path)
    pki.check_complete(secrets, ["node-0", "node-1"])
