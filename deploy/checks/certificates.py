"""Checks of certificates and private keys; findings never contain secret content."""

import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from fedsim.deploy import pki
from fedsim.deploy.finding import Finding, ok, problem, warning

SOON = timedelta(days=30)
RENEW = "make new certificates with `fedsim deploy init --rotate`"
NEW_INTERMEDIATE = (
    "make a new one with `fedsim deploy certificates --new-intermediate`, then `up`, then `init --rotate`"
)
NEW_CA = "remove the folder of secrets, run `fedsim deploy init` and `up`, and approve the nodes that joined again"


def ca_certificate(path: Path) -> Finding:
    """The certificate of the CA that every machine of the federation trusts."""
    what = f"CA certificate {path}"
    found = _certificate(what, path)
    if isinstance(found, Finding):
        return found
    try:
        may_sign = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        may_sign = False
    if not may_sign:
        return problem(
            what, f"{path} is not the certificate of a CA", f"copy the federation's CA certificate to {path}"
        )
    return _validity(what, path, found)


def server_certificate(path: Path, key: Path, ca: Path, host: str) -> list[Finding]:
    """The server's certificate must be valid now, for this host and this key, and signed by this CA, perhaps through
    intermediates in the same file."""
    what = f"certificate {path}"
    found, issuer = _certificate(what, path), _certificate(f"CA certificate {ca}", ca)
    if isinstance(found, Finding):
        return [found]
    chain = x509.load_pem_x509_certificates(path.read_bytes())
    findings = [_validity(what, path, min(chain, key=lambda each: each.not_valid_after_utc))]
    if host not in (names := pki.valid_names(found)):
        told = f"{path} is for {', '.join(names) or 'no host'}, not for {host}"
        findings.append(problem(what, told, f"correct host, or {RENEW}"))
    if not isinstance(issuer, Finding) and not all(map(_signed, chain, [*chain[1:], issuer])):
        findings.append(problem(what, f"{path} is not signed by the CA {ca}", f"copy the right CA to {ca}, or {RENEW}"))
    private = _private(key)
    if private is not None and private.public_key() != found.public_key():
        findings.append(problem(what, f"{path} does not belong to the key {key}", RENEW))
    return findings


def federation(secrets: Path) -> list[Finding]:
    """The certificates that the operator keeps: of the CA, of the present intermediate and of the server."""
    names = (("the CA", pki.CA), ("the intermediate", pki.ISSUER), ("the server", pki.SERVER))
    remedies = {pki.SERVER: RENEW, pki.ISSUER: NEW_INTERMEDIATE, pki.CA: NEW_CA}
    findings = list[Finding]()
    for what, name in names:
        found = _certificate(f"certificate of {what}", secrets / name)
        valid = found if isinstance(found, Finding) else _validity(f"certificate of {what}", secrets / name, found)
        findings.append(replace(valid, remedy=remedies[name]) if valid.remedy else valid)
    return findings


def private_key(path: Path, of_node: bool = False) -> Finding:
    """A private key must be readable, and by its owner alone; a node's must be of a NIST curve, in OpenSSH format."""
    what = f"key {path}"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        path.read_bytes()
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror}"
        return problem(what, told, f"copy the key to {path}, owned by the user who starts this")
    if mode & 0o077:
        return problem(what, f"{path} can be read by others (mode {mode:03o})", f"chmod 600 {path}")
    private = _private(path)
    if private is None:
        return problem(what, f"{path} is not a private key, or has a passphrase", "make a new one and register it")
    if of_node and not (isinstance(private, ec.EllipticCurvePrivateKey) and _is_openssh(path)):
        return problem(
            what,
            f"{path} is not a key that Flower's SuperNode accepts",
            "make an EC key on P-384 in OpenSSH format and register it",
        )
    return ok(what, f"{path} is readable by its owner alone")


def _certificate(what: str, path: Path) -> x509.Certificate | Finding:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        return problem(what, f"{path} cannot be read: {error.strerror}", f"copy the certificate to {path}")
    except ValueError:
        return problem(what, f"{path} is not a certificate in PEM format", f"copy the certificate to {path} again")


def _validity(what: str, path: Path, found: x509.Certificate) -> Finding:
    now, first, last = datetime.now(UTC), found.not_valid_before_utc, found.not_valid_after_utc
    if last < now:
        return problem(what, f"{path} expired on {last:%Y-%m-%d}", RENEW)
    if first > now:
        told = f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC on, but the clock of this machine says {now:%Y-%m-%d %H:%M}"
        return problem(what, told, "set the clock right")
    if last - now < SOON:
        return warning(what, f"{path} expires on {last:%Y-%m-%d}, in {(last - now).days} days", RENEW)
    return ok(what, f"{path} is valid until {last:%Y-%m-%d}")


def _signed(found: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        found.verify_directly_issued_by(issuer)
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
