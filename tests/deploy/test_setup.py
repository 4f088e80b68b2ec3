"""`fedsim deploy init`: certificates and keys are created once, kept, and renewed on request."""

import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.deploy import passphrase, pki
from fedsim.deploy.federation import Federation
from fedsim.deploy.inventory import read
from fedsim.deploy.setup import init, new_intermediate
from fedsim.errors import ConfigError, FedsimError


def make(
    folder: Path, *, host: str = "127.0.0.1", nodes: int = 2, add: list[str] | None = None, rotate: bool = False
) -> list[str]:
    return list(init(folder, "lab", host, nodes, add or [], rotate))


def verify(folder: Path, trusted: str = pki.CA) -> list[str]:
    """The command with which openssl checks the server's certificate with the intermediate that comes with it."""
    secrets = folder / "secrets"
    chain = ["-untrusted", str(secrets / pki.SERVER), "-CAfile", str(secrets / trusted)]
    return ["openssl", "verify", *(["-partial_chain"] if trusted != pki.CA else []), *chain]


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
    assert len(private) == 6  # CA, intermediate, operator, server, two nodes
    assert {p.stat().st_mode & 0o777 for p in private} == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_messages_contain_no_secret(tmp_path: Path) -> None:
    told = "\n".join(make(tmp_path))
    for key in (tmp_path / "secrets").rglob("*.key"):
        body = key.read_text().splitlines()[1]
        assert body not in told


def test_the_certificate_serves_the_server_under_its_names(tmp_path: Path) -> None:
    make(tmp_path, host="fl.example.org")
    server = str(tmp_path / "secrets" / pki.SERVER)
    names = pki.valid_names(pki.read_certificate(Path(server)))
    assert {"fl.example.org", "localhost", "127.0.0.1"} <= set(names)
    subprocess.run([*verify(tmp_path), "-verify_hostname", "fl.example.org", server], check=True, capture_output=True)
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


def test_rotation_renews_everything_but_the_authorities(tmp_path: Path) -> None:
    make(tmp_path)
    before = content(tmp_path / "secrets")
    make(tmp_path, rotate=True)
    after = content(tmp_path / "secrets")
    changed = {name for name in after if before[name] != after[name]}
    kept = {"ca.crt", "ca.key", "issuer.crt", "issuer.key", "trust.crt", ".gitignore"}
    kept |= {"operators/admin.key", "operators/admin.pub"}
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
    command = [*verify(tmp_path), str(tmp_path / "secrets" / pki.SERVER)]
    assert "expired" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


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


SECRET = "correct horse battery"


def secret() -> bytes:
    return SECRET.encode()


def test_the_keys_of_the_authorities_have_a_passphrase(tmp_path: Path) -> None:
    told = list(init(tmp_path, "lab", "127.0.0.1", 1, [], False, encrypt=secret))
    assert not any("trial" in line for line in told)
    for name in (pki.CA_KEY, pki.ISSUER_KEY):
        assert b"ENCRYPTED" in (tmp_path / "secrets" / name).read_bytes()
    assert b"ENCRYPTED" not in (tmp_path / "secrets" / pki.SERVER_KEY).read_bytes()  # the server starts by itself
    assert make(tmp_path) == []  # nothing to sign
    with pytest.raises(FedsimError, match="the key of the CA has a passphrase: give it with --passphrase-file FILE or"):
        make(tmp_path, rotate=True)
    with pytest.raises(FedsimError, match=r"issuer\.key cannot be used: the passphrase is wrong"):
        list(init(tmp_path, "lab", "", 1, [], True, lambda: b"wrong"))
    before = content(tmp_path / "secrets")
    assert list(init(tmp_path, "lab", "", 1, [], True, secret))
    assert content(tmp_path / "secrets")["server.crt"] != before["server.crt"]


def test_a_set_up_without_a_passphrase_is_called_a_trial_and_can_get_one(tmp_path: Path) -> None:
    assert any(line.startswith("this is a set-up for trials") for line in make(tmp_path))
    told = list(init(tmp_path, "lab", "", 1, [], False, encrypt=secret))
    assert [line.rpartition("/")[2] for line in told] == [
        "ca.key has a passphrase now",
        "issuer.key has a passphrase now",
    ]
    with pytest.raises(FedsimError, match="has a passphrase"):
        make(tmp_path, rotate=True)


def test_passphrases_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "passphrase"
    file.write_text(f"{SECRET}\n")
    assert passphrase.source(file)() == passphrase.new(file) == secret()
    with pytest.raises(FedsimError, match="give it with --passphrase-file FILE or FEDSIM_CA_PASSPHRASE"):
        passphrase.source(None)()  # there is no terminal
    with pytest.raises(ConfigError, match="there is no terminal to ask for a passphrase"):
        passphrase.new(None)
    monkeypatch.setenv("FEDSIM_CA_PASSPHRASE", SECRET)
    assert passphrase.source(None)() == passphrase.new(None) == secret()
    monkeypatch.setenv("FEDSIM_CA_PASSPHRASE", "short")
    with pytest.raises(ConfigError, match="at least 12 characters"):
        passphrase.new(None)
    with pytest.raises(ConfigError, match="the passphrase cannot be read from /nowhere"):
        passphrase.source(Path("/nowhere"))()


def checks(folder: Path, server: Path, trusted: str = pki.TRUST) -> bool:
    """Whether openssl accepts this server's certificate with the intermediates that nodes trust now."""
    secrets = folder / "secrets"
    anchors = ["-partial_chain", "-untrusted", str(server), "-CAfile", str(secrets / trusted)]
    return (
        subprocess.run(["openssl", "verify", *anchors, str(server)], capture_output=True, check=False).returncode == 0
    )


def test_a_new_intermediate_is_trusted_beside_the_present_one(tmp_path: Path) -> None:
    make(tmp_path)
    secrets, old = tmp_path / "secrets", tmp_path / "old.crt"
    old.write_bytes((secrets / pki.SERVER).read_bytes())
    (told,) = new_intermediate(read(tmp_path / "federation.toml"), revoke=False, passphrase=pki.no_passphrase)
    assert "after that `init --rotate` uses it" in told
    assert (secrets / pki.SERVER).read_bytes() == old.read_bytes(), "nodes must know it first"
    assert len(pki.read_certificates(secrets / pki.TRUST)) == 2
    make(tmp_path, rotate=True)
    assert (secrets / pki.SERVER).read_bytes() != old.read_bytes()
    assert checks(tmp_path, secrets / pki.SERVER)
    assert checks(tmp_path, old)


def test_a_revoked_certificate_is_refused_and_the_new_one_trusted(tmp_path: Path) -> None:
    list(init(tmp_path, "lab", "127.0.0.1", 1, [], False, encrypt=secret))
    secrets, leaked = tmp_path / "secrets", tmp_path / "leaked.crt"
    leaked.write_bytes((secrets / pki.SERVER).read_bytes())
    with pytest.raises(FedsimError, match="has a passphrase"):
        list(new_intermediate(read(tmp_path / "federation.toml"), revoke=True, passphrase=pki.no_passphrase))
    list(new_intermediate(read(tmp_path / "federation.toml"), revoke=True, passphrase=secret))
    assert checks(tmp_path, secrets / pki.SERVER)
    assert not checks(tmp_path, leaked)
    assert checks(tmp_path, leaked, pki.CA), "who trusted the CA itself would still accept it"
    assert b"ENCRYPTED" in (secrets / pki.ISSUER_KEY).read_bytes()


def test_certificates_that_expire_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path)
    assert main(["deploy", "certificates", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("ok ") == 3
    pki.issue_server_certificate(tmp_path / "secrets", ["127.0.0.1"], timedelta(days=10, hours=1))
    assert main(["deploy", "certificates", "--dir", str(tmp_path)]) == 0
    assert "warning  certificate of the server" in capsys.readouterr().out
    (row,) = [row for row in Federation(read(tmp_path / "federation.toml")).certificates() if row.level != "ok"]
    assert "in 10 days" in row.message
    assert "init --rotate" in row.remedy
    pki.issue_server_certificate(tmp_path / "secrets", ["127.0.0.1"], timedelta(days=-1))
    assert main(["deploy", "certificates", "--dir", str(tmp_path)]) == 1


def test_a_ca_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "secrets" / pki.ISSUER).unlink()
    with pytest.raises(FedsimError, match=r"ca\.crt was made by an earlier version"):
        make(tmp_path)
