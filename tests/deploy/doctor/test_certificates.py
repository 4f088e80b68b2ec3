"""Checks of keys and certificates: private, valid now, signed by the CA of the federation, for this host."""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedsim.deploy import doctor

from ..certificate_authority import DAY, CertificateAuthority, store
from .home_folder import the_problem


def test_a_key_others_can_read(node: Path) -> None:
    (node / "node.key").chmod(0o644)
    line = the_problem(doctor.check_home(node))
    assert f"{node / 'node.key'} can be read by others (mode 644)" in line
    assert f"chmod 600 {node / 'node.key'}" in line


def test_a_key_that_is_no_key_of_a_node(node: Path) -> None:
    key = node / "node.key"
    store(key, ec.generate_private_key(ec.SECP384R1()))  # PEM, which a SuperNode does not accept
    assert "is not a key that Flower's SuperNode accepts" in the_problem(doctor.check_home(node))
    other = ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    assert "is not a key that Flower's SuperNode accepts" in the_problem(doctor.check_home(node))
    key.write_text("no key")
    line = the_problem(doctor.check_home(node))
    assert "is not a private key" in line
    key.unlink()
    assert "node.key cannot be read: No such file" in the_problem(doctor.check_home(node))


def test_an_expired_certificate(server: Path, ca: CertificateAuthority) -> None:
    key = ca.issue(server / "server.crt", ["127.0.0.1"], first=-2 * DAY, last=-DAY)
    store(server / "server.key", key)
    assert "server.crt expired on 20" in the_problem(doctor.check_home(server))


def test_a_certificate_that_expires_soon(server: Path, ca: CertificateAuthority) -> None:
    store(server / "server.key", ca.issue(server / "server.crt", ["127.0.0.1"], last=10.5 * DAY))
    assert "in 10 days" in the_problem(doctor.check_home(server), "warning")


def test_a_certificate_from_the_future(server: Path, ca: CertificateAuthority) -> None:
    store(server / "server.key", ca.issue(server / "server.crt", ["127.0.0.1"], first=DAY))
    assert "but the clock of this machine says" in the_problem(doctor.check_home(server))


def test_another_ca(server: Path) -> None:
    CertificateAuthority.new().publish(server / "ca.crt")  # of the same name
    assert f"is not signed by the CA {server / 'ca.crt'}" in the_problem(doctor.check_home(server))


def test_a_changed_certificate(server: Path) -> None:
    """One bit of the signature is changed: the file is still a certificate, but not a valid one."""
    content = bytearray(ssl.PEM_cert_to_DER_cert((server / "server.crt").read_text()))
    content[-1] ^= 1
    (server / "server.crt").write_text(ssl.DER_cert_to_PEM_cert(bytes(content)))
    assert "is not signed by the CA" in the_problem(doctor.check_home(server))


def test_a_certificate_for_another_host_or_key(server: Path, ca: CertificateAuthority) -> None:
    store(server / "server.key", ca.issue(server / "server.crt", ["10.0.0.1", "far.example"]))
    assert "server.crt is for far.example, 10.0.0.1, not for 127.0.0.1" in the_problem(doctor.check_home(server))
    ca.issue(server / "server.crt", ["127.0.0.1"])
    assert "does not belong to the key" in the_problem(doctor.check_home(server))


def test_a_ca_file_that_is_not_of_a_ca(node: Path, ca: CertificateAuthority) -> None:
    ca.issue(node / "ca.crt", ["127.0.0.1"])
    assert "ca.crt is not the certificate of a CA" in the_problem(doctor.check_home(node))
    (node / "ca.crt").write_text("nothing")
    assert "ca.crt is not a certificate in PEM format" in the_problem(doctor.check_home(node))
