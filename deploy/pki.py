"""Certificates and keys of one federation: a private CA, an intermediate CA, the server's certificate, a key pair per node.

    ca.crt ca.key            the certificate authority (CA): signs intermediates; its key never leaves this machine
    issuer.crt issuer.key    the present intermediate CA: signs the server's certificates and the approvals of nodes
    trust.crt                the intermediates that nodes trust, the present one first
    server.crt server.key    of the SuperLink, valid for every name and address that nodes may use; with its intermediate
    nodes/NAME.key NAME.pub  of a SuperNode; the public key is registered with the SuperLink. Who joined keeps the key itself

Private keys are readable by their owner alone; those of the CA and of the intermediate may have a passphrase.

Flower's SuperNode checks no revocation lists. Its trust anchors (`--root-certificates`) are therefore the intermediates, not
the CA: a new intermediate that takes the place of the others makes every certificate of the others worthless.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
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
ISSUER, ISSUER_KEY, TRUST = "issuer.crt", "issuer.key", "trust.crt"
CA_YEARS, ISSUER_YEARS, SERVER_DAYS = 10, 3, 365
CURVE = ec.SECP384R1()  # Flower authenticates SuperNodes by NIST curves
CONTAINER_HOST = "fedsim-server"  # the host name of the server in container networks; every certificate is valid for it
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # used by commands on the server itself
ENCRYPTED = b"ENCRYPTED PRIVATE KEY"
Passphrase = Callable[[], bytes]  # asked for only if a key needs it


def no_passphrase() -> bytes:
    raise FedsimError("the key of the CA has a passphrase: give it with --passphrase-file FILE or FEDSIM_CA_PASSPHRASE")


def create_ca(folder: Path, name: str, passphrase: bytes | None = None) -> None:
    """Writes the key and the self-signed certificate of a new CA, and its first intermediate."""
    key = ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    certificate = (
        _builder(subject, subject, key, timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_may_sign(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    write_bytes(folder / CA_KEY, _pem(key, passphrase), PRIVATE)
    write_bytes(folder / CA, certificate.public_bytes(Encoding.PEM))
    create_issuer(folder, lambda: passphrase or b"", keep_trusted=False)


def create_issuer(folder: Path, passphrase: Passphrase = no_passphrase, keep_trusted: bool = True) -> None:
    """Writes a new intermediate, signed by the CA. `keep_trusted`: nodes go on trusting the previous ones as well; without
    it, nodes that get the new file refuse every certificate that was issued before."""
    ca, (ca_key, secret) = read_certificate(folder / CA), _unlocked(folder / CA_KEY, passphrase)
    if not ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length:
        raise FedsimError(f"{folder / CA} was made by an earlier version: remove {folder} and run `fedsim deploy init`")
    key = ec.generate_private_key(CURVE)
    name = f"{ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value!s} {token_hex(4)}"
    lifetime = min(timedelta(days=365 * ISSUER_YEARS), ca.not_valid_after_utc - datetime.now(UTC))
    certificate = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), ca.subject, key, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_may_sign(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, SHA256())
    )
    before = read_certificates(folder / TRUST) if keep_trusted and (folder / TRUST).exists() else []
    trusted = [certificate, *(each for each in before if each.not_valid_after_utc > datetime.now(UTC))]
    write_bytes(folder / ISSUER_KEY, _pem(key, secret), PRIVATE)
    write_bytes(folder / ISSUER, certificate.public_bytes(Encoding.PEM))
    write_bytes(folder / TRUST, b"".join(each.public_bytes(Encoding.PEM) for each in trusted))


def issue_server_certificate(
    folder: Path,
    hosts: Iterable[str],
    lifetime: timedelta = timedelta(days=SERVER_DAYS),
    passphrase: Passphrase = no_passphrase,
) -> None:
    """Writes a key and a certificate that is valid for these names and addresses, in containers and on loopback."""
    issuer, (issuer_key, _) = read_certificate(folder / ISSUER), _unlocked(folder / ISSUER_KEY, passphrase)
    key, names = ec.generate_private_key(CURVE), dict.fromkeys([*hosts, CONTAINER_HOST, *LOOPBACK])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, next(iter(names)))])
    certificate = (
        _builder(subject, issuer.subject, key, min(lifetime, issuer.not_valid_after_utc - datetime.now(UTC)))
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, SHA256())
    )
    write_bytes(folder / SERVER_KEY, _pem(key), PRIVATE)
    write_bytes(folder / SERVER, b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, issuer)))


def encrypt_keys(folder: Path, passphrase: bytes) -> list[Path]:
    """Gives the keys of the CA and of the intermediate this passphrase, unless they have one; returns those it changed."""
    plain = [folder / name for name in (CA_KEY, ISSUER_KEY) if ENCRYPTED not in (folder / name).read_bytes()]
    for path in plain:
        write_bytes(path, _pem(_unlocked(path, no_passphrase)[0], passphrase), PRIVATE)
    return plain


def sign(folder: Path, content: bytes, passphrase: Passphrase = no_passphrase) -> bytes:
    """The signature of the present intermediate."""
    return _unlocked(folder / ISSUER_KEY, passphrase)[0].sign(content, ec.ECDSA(SHA256()))


def fingerprint(certificate: x509.Certificate) -> str:
    """What people compare."""
    return in_groups(certificate.fingerprint(SHA256()).hex())


def in_groups(text: str) -> str:
    """Four characters at a time."""
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


def create_node_key(folder: Path, name: str) -> None:
    """Writes a new key pair of a node into the folder of secrets."""
    (folder / "nodes").mkdir(mode=0o700, exist_ok=True)
    write_node_key(node_key(folder, name))
    write_bytes(node_public(folder, name), public_key_of(node_key(folder, name)) + b"\n")


def write_node_key(path: Path) -> None:
    """Writes a new private key, in the format that Flower's SuperNode reads."""
    key = ec.generate_private_key(CURVE)
    write_bytes(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), PRIVATE)


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
    """Raises FedsimError if a certificate or key of the federation is missing, or a node's two keys do not match.

    `nodes`: those whose keys are kept here.
    """
    common = (folder / name for name in (CA, TRUST, SERVER, SERVER_KEY))
    for path in (*common, *(node_key(folder, name) for name in nodes)):
        if not path.exists():
            raise FedsimError(f"{path} is missing: run `fedsim deploy init`, which creates what is missing")
    for name in nodes:
        public = node_public(folder, name)
        if not public.exists() or public.read_bytes().split()[:2] != public_key_of(node_key(folder, name)).split()[:2]:
            raise FedsimError(
                f"{public} does not belong to {node_key(folder, name)}: remove the key and run `fedsim deploy init`, "
                "which creates both again"
            )


def public_key_of(key: Path) -> bytes:
    """The public half of a node's key, in OpenSSH format."""
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


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Every certificate of a file."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FedsimError(f"{path} is not a readable certificate ({error}): run `fedsim deploy init`") from error


def _may_sign() -> x509.KeyUsage:
    return x509.KeyUsage(
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


def _pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    cipher: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher)


def _unlocked(path: Path, passphrase: Passphrase) -> tuple[ec.EllipticCurvePrivateKey, bytes | None]:
    """A private key and its passphrase, which is asked for if the key has one."""
    try:
        content = path.read_bytes()
        secret = passphrase() if ENCRYPTED in content else None
        key = load_pem_private_key(content, secret)
    except OSError as error:
        raise FedsimError(f"{path} cannot be read: {error.strerror}. It is needed to sign certificates") from error
    except ValueError as error:
        told = "the passphrase is wrong" if ENCRYPTED in content else "it is not a private key"
        raise FedsimError(f"{path} cannot be used: {told}") from error
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key, secret
