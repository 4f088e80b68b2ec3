"""Certificates and keys of one federation: a private authority, the server's certificate, one key pair per node.

    ca.crt ca.key            the authority; its key never leaves this machine
    server.crt server.key    the SuperLink's, for every name and address it may be called by
    nodes/NAME.key NAME.pub  a SuperNode's identity: its public half is registered with the SuperLink

Private files are written readable by their owner alone, and never overwritten unless asked to rotate.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.files import write_private, write_public
from fedsim.errors import FedsimError

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
AUTHORITY_YEARS, SERVER_DAYS = 10, 365
CURVE = ec.SECP384R1()  # Flower authenticates SuperNodes by NIST curves
INSIDE = "fedsim-server"  # the server's name among containers; every certificate is valid for it
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # the server's own commands reach it there


def create_authority(folder: Path, name: str) -> None:
    key = ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    signs = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key, timedelta(days=365 * AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    write_private(folder / CA_KEY, _pem(key))
    write_public(folder / CA, certificate.public_bytes(Encoding.PEM))


def issue_server(folder: Path, hosts: Iterable[str], lifetime: timedelta = timedelta(days=SERVER_DAYS)) -> None:
    """A certificate for the server under each of these names and addresses, among containers, and on its own loopback."""
    authority, signer = read_certificate(folder / CA), _read_key(folder / CA_KEY)
    key, names = ec.generate_private_key(CURVE), dict.fromkeys([*hosts, INSIDE, *LOOPBACK])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, next(iter(names)))])
    certificate = (
        _builder(subject, authority.subject, key, lifetime)
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, SHA256())
    )
    write_private(folder / SERVER_KEY, _pem(key))
    write_public(folder / SERVER, certificate.public_bytes(Encoding.PEM))


def create_node_key(folder: Path, name: str) -> None:
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_private(node_key(folder, name), private)
    write_public(node_public(folder, name), public + b"\n")


def node_key(folder: Path, name: str) -> Path:
    return folder / "nodes" / f"{name}.key"


def node_public(folder: Path, name: str) -> Path:
    return folder / "nodes" / f"{name}.pub"


def names_of(certificate: x509.Certificate) -> list[str]:
    """Every name and address the certificate is valid for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def check_complete(folder: Path, nodes: Collection[str]) -> None:
    """Refuses to go on without a certificate or a key that the federation needs."""
    for path in (folder / CA, folder / SERVER, folder / SERVER_KEY, *(node_key(folder, name) for name in nodes)):
        if not path.exists():
            raise FedsimError(f"{path} is missing: run `fedsim deploy init`, which makes what is not there")
    for name in nodes:
        public = node_public(folder, name)
        if not public.exists() or public.read_bytes().split()[:2] != _public_of(node_key(folder, name)).split()[:2]:
            raise FedsimError(
                f"{public} does not belong to {node_key(folder, name)}: remove the key and run `fedsim deploy init`, "
                "which makes both again"
            )


def _public_of(key: Path) -> bytes:
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
    except ValueError as error:
        raise FedsimError(f"{key} is no key of a node ({error}): remove it and run `fedsim deploy init`") from error
    return private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FedsimError(f"{path} is not a readable certificate ({error}): run `fedsim deploy init`") from error


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + lifetime) - timedelta(days=1))  # clocks differ a little
        .not_valid_after(now + lifetime)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key
