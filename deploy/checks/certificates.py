"""The CA, certificates and private keys. Nothing secret is ever told, only whether it is there and fits."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from deploy import pki
from deploy.finding import Finding, ok, problem, warning

SOON = timedelta(days=30)
NEW_ONE = "make new certificates with `fedsim deploy init --rotate`"


def authority(path: Path) -> Finding:
    """The CA that everyone in the federation trusts."""
    what = f"CA certificate {path}"
    found = _certificate(what, path)
    if isinstance(found, Finding):
        return found
    try:
        may_sign = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        may_sign = False
    if not may_sign:
        return problem(what, f"{path} is no certificate of a CA", f"copy the federation's CA certificate to {path}")
    return _validity(what, path, found)


def certificate(path: Path, key: Path, ca: Path, host: str) -> list[Finding]:
    """The server's certificate: valid now, for this host, of this key, signed by this CA."""
    what = f"certificate {path}"
    found, signer = _certificate(what, path), _certificate(f"CA certificate {ca}", ca)
    if isinstance(found, Finding):
        return [found]
    findings = [_validity(what, path, found)]
    if host not in (names := pki.names_of(found)):
        told = f"{path} is for {', '.join(names) or 'no host'}, not for {host}"
        findings.append(problem(what, told, f"correct host, or {NEW_ONE}"))
    if not isinstance(signer, Finding) and not _signed(found, signer):
        findings.append(
            problem(what, f"{path} is not signed by the CA {ca}", f"copy the right CA to {ca}, or {NEW_ONE}")
        )
    own = _private(key)
    if own is not None and own.public_key() != found.public_key():
        findings.append(problem(what, f"{path} does not belong to the key {key}", NEW_ONE))
    return findings


def private_key(path: Path, of_node: bool = False) -> Finding:
    """There, for its owner alone, and readable; a node's must be a NIST curve in OpenSSH format."""
    what = f"key {path}"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.read_bytes()
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror}"
        return problem(what, told, f"copy the key to {path}, owned by the user who starts this")
    if mode & 0o077:
        return problem(what, f"{path} can be read by others (mode {mode:03o})", f"chmod 600 {path}")
    own = _private(path)
    if own is None:
        return problem(what, f"{path} is no private key, or one with a passphrase", "make a new one and register it")
    if of_node and not (isinstance(own, ec.EllipticCurvePrivateKey) and _is_openssh(path)):
        return problem(
            what,
            f"{path} is not what Flower's SuperNode takes",
            "make an EC key on P-384 in OpenSSH format and register it",
        )
    return ok(what, f"{path} is readable by its owner alone")


def _certificate(what: str, path: Path) -> x509.Certificate | Finding:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        return problem(what, f"{path} cannot be read: {error.strerror}", f"copy the certificate to {path}")
    except ValueError:
        return problem(what, f"{path} is no certificate in PEM format", f"copy the certificate to {path} again")


def _validity(what: str, path: Path, found: x509.Certificate) -> Finding:
    now, first, last = datetime.now(UTC), found.not_valid_before_utc, found.not_valid_after_utc
    if last < now:
        return problem(what, f"{path} expired on {last:%Y-%m-%d}", NEW_ONE)
    if first > now:
        told = f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC on, and this clock says {now:%Y-%m-%d %H:%M}"
        return problem(what, told, "set the clock right")
    if last - now < SOON:
        return warning(what, f"{path} expires on {last:%Y-%m-%d}, in {(last - now).days} days", NEW_ONE)
    return ok(what, f"{path} is valid until {last:%Y-%m-%d}")


def _signed(found: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        found.verify_directly_issued_by(signer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_openssh(path: Path) -> bool:
    return path.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")


def _private(path: Path) -> PrivateKeyTypes | None:
    try:
        load = load_ssh_private_key if _is_openssh(path) else load_pem_private_key
        return load(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
