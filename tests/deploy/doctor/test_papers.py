"""Keys and certificates: private, in force, of this authority, and for this host."""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from deploy import doctor

from ..authority import DAY, Authority, store
from .home import the_problem


def test_a_key_others_can_read(node: Path) -> None:
    (node / "node.key").chmod(0o644)
    line = the_problem(doctor.examine(node))
    assert f"{node / 'node.key'} can be read by others (mode 644)" in line
    assert f"chmod 600 {node / 'node.key'}" in line


def test_a_key_that_is_no_key_of_a_node(node: Path) -> None:
    key = node / "node.key"
    store(key, ec.generate_private_key(ec.SECP384R1()))  # PEM, which a SuperNode does not take
    assert "is not what Flower's SuperNode takes" in the_problem(doctor.examine(node))
    other = ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    assert "is not what Flower's SuperNode takes" in the_problem(doctor.examine(node))
    key.write_text("no key")
    line = the_problem(doctor.examine(node))
    assert "is no private key" in line
    key.unlink()
    assert "node.key cannot be read: No such file" in the_problem(doctor.examine(node))


def test_an_expired_certificate(server: Path, authority: Authority) -> None:
    key = authority.issue(server / "server.crt", ["127.0.0.1"], first=-2 * DAY, last=-DAY)
    store(server / "server.key", key)
    assert "server.crt expired on 20" in the_problem(doctor.examine(server))


def test_a_certificate_that_expires_soon(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["127.0.0.1"], last=10.5 * DAY))
    assert "in 10 days" in the_problem(doctor.examine(server), "warning")


def test_a_certificate_from_the_future(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["127.0.0.1"], first=DAY))
    assert "this clock says" in the_problem(doctor.examine(server))


def test_another_ca(server: Path) -> None:
    Authority.new().publish(server / "ca.crt")  # of the same name
    assert f"is not signed by the CA {server / 'ca.crt'}" in the_problem(doctor.examine(server))


def test_a_changed_certificate(server: Path) -> None:
    """One bit of the signature: it still reads as a certificate, and no longer holds."""
    content = bytearray(ssl.PEM_cert_to_DER_cert((server / "server.crt").read_text()))
    content[-1] ^= 1
    (server / "server.crt").write_text(ssl.DER_cert_to_PEM_cert(bytes(content)))
    assert "is not signed by the CA" in the_problem(doctor.examine(server))


def test_a_certificate_for_another_host_or_key(server: Path, authority: Authority) -> None:
    store(server / "server.key", authority.issue(server / "server.crt", ["10.0.0.1", "far.example"]))
    assert "server.crt is for far.example, 10.0.0.1, not for 127.0.0.1" in the_problem(doctor.examine(server))
    authority.issue(server / "server.crt", ["127.0.0.1"])
    assert "does not belong to the key" in the_problem(doctor.examine(server))


def test_a_ca_that_is_none(node: Path, authority: Authority) -> None:
    authority.issue(node / "ca.crt", ["127.0.0.1"])
    assert "ca.crt is no certificate of a CA" in the_problem(doctor.examine(node))
    (node / "ca.crt").write_text("nothing")
    assert "ca.crt is no certificate in PEM format" in the_problem(doctor.examine(node))
