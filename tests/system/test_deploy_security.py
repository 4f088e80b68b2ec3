"""Who gets into a federation: against the real SuperLink, with Flower's own SuperNode and the wrong papers."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from deploy import pki

from .flower import BIN, free_port
from .site import NODES, Site, eventually, process

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
ADMITTED = "SuperNode ID"  # what a SuperNode says once it is in


def knock(site: Site, folder: Path, key: Path | None, authority: Path | None, port: int = 0) -> str:
    """A SuperNode with these papers, from the host of a ward, until it gives up; returns what it said."""
    where = f"{site.hosts[0].address}:{port or site.fleet_port}"
    command = [*site.hosts[1].via.split(), str(BIN / "flower-supernode"), "--superlink", where, "--max-retries", "1"]
    command += ["--port", str(free_port()), "--node-config", "partition-id=0"]
    command += ["--root-certificates", str(authority)] if authority else ["--insecure"]
    command += ["--auth-supernode-private-key", str(key)] if key else []
    with process(command, folder, "knock.log") as started, suppress(subprocess.TimeoutExpired):
        started.wait(timeout=40)  # some give up, some keep trying: either way what they said tells
    return (folder / "knock.log").read_text()


def test_a_key_that_is_not_registered_gets_nothing(site: Site, tmp_path: Path) -> None:
    pki.create_node_key(tmp_path, "stranger")
    told = knock(site, tmp_path, pki.node_key(tmp_path, "stranger"), site.folder / "secrets" / pki.CA)
    assert ADMITTED not in told, told
    assert len(site.status()["nodes"]) == NODES


def test_another_authority_is_not_trusted(site: Site, tmp_path: Path) -> None:
    pki.create_authority(tmp_path, "other")
    told = knock(site, tmp_path, pki.node_key(site.folder / "secrets", "ward-0"), tmp_path / pki.CA)
    assert ADMITTED not in told, told


def test_plain_text_is_not_answered(site: Site, tmp_path: Path) -> None:
    told = knock(site, tmp_path, None, None)
    assert ADMITTED not in told, told


def test_a_certificate_that_was_tampered_with_is_refused(site: Site, tmp_path: Path) -> None:
    """A SuperLink that shows our certificate with one bit of its signature changed."""
    secrets, port = site.folder / "secrets", free_port()
    encoded = bytearray(pki.read_certificate(secrets / pki.SERVER).public_bytes(Encoding.DER))
    encoded[-1] ^= 1
    (tmp_path / "server.crt").write_bytes(x509.load_der_x509_certificate(bytes(encoded)).public_bytes(Encoding.PEM))
    command = [*site.hosts[0].via.split(), str(BIN / "flower-superlink"), "--ssl-certfile", "server.crt"]
    command += ["--ssl-keyfile", str(secrets / pki.SERVER_KEY), "--ssl-ca-certfile", str(secrets / pki.CA)]
    command += ["--enable-supernode-auth", "--port", str(free_port()), "--fleet-api-address", f"0.0.0.0:{port}"]
    with process(command, tmp_path, "link.log"):
        eventually(lambda: "Starting Fleet API" in (tmp_path / "link.log").read_text(), 90, "the SuperLink")
        told = knock(site, tmp_path, pki.node_key(secrets, "ward-0"), secrets / pki.CA, port)
    assert ADMITTED not in told, told


def test_rotated_keys_are_the_only_ones_from_then_on(site: Site, tmp_path: Path) -> None:
    secrets, former = site.folder / "secrets", tmp_path / "former.key"
    former.write_bytes(pki.node_key(secrets, "ward-0").read_bytes())
    former.chmod(0o600)
    site.fedsim("init", "--rotate")
    assert site.fedsim("up").count("a former key of") == NODES
    assert site.status()["healthy"]
    assert ADMITTED not in knock(site, tmp_path, former, secrets / pki.CA)


def test_a_home_holds_no_secret_of_another(site: Site) -> None:
    owners = {path.read_bytes(): path.stem for path in (site.folder / "secrets").rglob("*.key")}
    assert len(owners) == NODES + 2
    for name in ("server", *(f"ward-{number}" for number in range(NODES))):
        files = [path for path in site.home(name).rglob("*") if path.is_file()]
        assert {owners[path.read_bytes()] for path in files if path.read_bytes() in owners} == {name}
        assert {path.stat().st_mode & 0o777 for path in site.home(name).glob("*.key")} == {0o600}
