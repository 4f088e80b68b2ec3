"""Real keys and certificates for the tests."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class CertificateAuthority:
    """A CA of its own."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str = "CA", last: timedelta = 365 * DAY) -> "CertificateAuthority":
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, name, key, last).add_extension(x509.BasicConstraints(True, None), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return cls(name, key, builder.add_extension(identifier, False).sign(key, hashes.SHA256()))

    def issue(
        self, file: Path, hosts: list[str], first: timedelta = -DAY, last: timedelta = 365 * DAY
    ) -> ec.EllipticCurvePrivateKey:
        """A certificate for these hosts at `file`; returns its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [_name(host) for host in hosts]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder("server", self.name, key, last, first)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False).add_extension(identifier, False)
        file.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return key

    def publish(self, file: Path) -> None:
        file.write_bytes(self.certificate.public_bytes(Encoding.PEM))


def store(file: Path, key: ec.EllipticCurvePrivateKey, ssh: bool = False, mode: int = 0o600) -> None:
    kind = PrivateFormat.OpenSSH if ssh else PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(Encoding.PEM, kind, NoEncryption()))
    file.chmod(mode)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, last: timedelta, first: timedelta = -3 * DAY
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    subject_name, issuer_name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (subject, issuer))
    builder = x509.CertificateBuilder().subject_name(subject_name).issuer_name(issuer_name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(now + first).not_valid_after(now + last)
