"""Certificates and keys of one federation: a private CA, the server's certificate, one key pair per node.

    ca.crt ca.key            the certificate authority (CA); its key never leaves this machine
    server.crt server.key    of the SuperLink, valid for every name and address that nodes may use
    nodes/NAME.key NAME.pub  of a SuperNode; the public key is registered with the SuperLink

Private keys are readable by their owner alone.
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

from fedsim.errors import FedsimError
from fedsim.files import PRIVATE, write_bytes

CA, CA_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
CA_YEARS, SERVER_DAYS = 10, 365
CURVE = ec.SECP384R1()  # Flower authenticates SuperNodes by NIST curves
CONTAINER_HOST = "fedsim-server"  # the host name of the server in container networks; every certificate is valid for it
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # used by commands on the server itself


def create_ca(folder: Path, name: str) -> None:
    """Writes the key and the self-signed certificate of a new CA."""
    key = ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    may_sign = x509.KeyUsage(
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
        _builder(subject, subject, key, timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(may_sign, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    write_bytes(folder / CA_KEY, _pem(key), PRIVATE)
    write_bytes(folder / CA, certificate.public_bytes(Encoding.PEM))


def issue_server_certificate(
    folder: Path, hosts: Iterable[str], lifetime: timedelta = timedelta(days=SERVER_DAYS)
) -> None:
    """Writes a key and a certificate that is valid for these names and addresses, in containers and on loopback."""
    ca, ca_key = read_certificate(folder / CA), _read_key(folder / CA_KEY)
    key, names = ec.generate_private_key(CURVE), dict.fromkeys([*hosts, CONTAINER_HOST, *LOOPBACK])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, next(iter(names)))])
    certificate = (
        _builder(subject, ca.subject, key, lifetime)
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, SHA256())
    )
    write_bytes(folder / SERVER_KEY, _pem(key), PRIVATE)
    write_bytes(folder / SERVER, certificate.public_bytes(Encoding.PEM))


def create_node_key(folder: Path, name: str) -> None:
    """Writes a new key pair of a node, in the format that Flower's SuperNode reads."""
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / "nodes").mkdir(mode=0o700, exist_ok=True)
    write_bytes(node_key(folder, name), private, PRIVATE)
    write_bytes(node_public(folder, name), public + b"\n")


def node_key(folder: Path, name: str) -> Path:
    return folder / "nodes" / f"{name}.key"


def node_public(folder: Path, name: str) -> Path:
    return folder / "nodes" / f"{name}.pub"


def valid_names(certificate: x509.Certificate) -> list[str]:
    """Every name and address the certificate is valid for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def check_complete(folder: Path, nodes: Collection[str]) -> None:
    """Raises FedsimError if a certificate or key of the federation is missing, or a node's two keys do not match."""
    for path in (folder / CA, folder / SERVER, folder / SERVER_KEY, *(node_key(folder, name) for name in nodes)):
        if not path.exists():
            raise FedsimError(f"{path} is missing: run `fedsim deploy init`, which creates what is missing")
    for name in nodes:
        public = node_public(folder, name)
        if not public.exists() or public.read_bytes().split()[:2] != _public_key_of(node_key(folder, name)).split()[:2]:
            raise FedsimError(
                f"{public} does not belong to {node_key(folder, name)}: remove the key and run `fedsim deploy init`, "
                "which creates both again"
            )


def _public_key_of(key: Path) -> bytes:
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
    except ValueError as error:
        raise FedsimError(
            f"{key} is not the key of a node ({error}): remove it and run `fedsim deploy init`"
        ) from error
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
        .not_valid_before(min(now, now + lifetime) - timedelta(days=1))  # for machines whose clocks are behind
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
