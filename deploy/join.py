"""A site joins a federation with a key that it makes itself. Nothing secret travels; nobody needs an account at the site.

    site      fedsim deploy join NAME --home DIR              DIR/node.key, which stays there, and NAME.request
    operator  fedsim deploy approve NAME.request              adds the node, and answers with approvals/NAME.approval
    site      fedsim deploy join --approval FILE --home DIR   DIR/node.json and the certificates that the node trusts

A request is an X.509 certificate signing request: its signature proves that the site has the key. An approval holds what is
public: the address of the server, the client id, versions, the CA's certificate and the trusted intermediates, signed by the
present intermediate. Who accepts the first one compares the CA's fingerprint with the operator; later ones, after a change
of the intermediate, must be of the same CA, and newer.
"""

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key
from cryptography.x509.oid import NameOID

from fedsim.config import Scalar
from fedsim.deploy import agent, machine_config, machine_files, pki, policy
from fedsim.deploy.inventory import FILE, NAME, Inventory, joined_template, read
from fedsim.deploy.machine_config import NodeConfig
from fedsim.deploy.pki import Passphrase
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import write_bytes, write_text

APPROVALS = "approvals"  # a folder beside the inventory
CA_CERTIFICATE, LAST = "root.crt", "approval.json"  # in the node's home folder: the CA, and the last approval
LONGEST = 100_000  # bytes of a request or approval
OWN = ("data", "device", "model")  # of the node config: the site says it, not the operator


# At the site


def request(home: Path, name: str, file: Path) -> Iterator[str]:
    """Makes the node's key, unless there is one, and writes the request. Yields a line about each thing it did."""
    _check_name(name)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = home / machine_files.NODE_KEY
    if not key.exists():
        pki.write_node_key(key)
        yield f"made {key}, which stays on this machine"
    private = load_ssh_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise FedsimError(f"{key} is not a key of an elliptic curve: remove it")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(private, SHA256())
    write_bytes(file, signed.public_bytes(Encoding.PEM))
    yield f"send {file} to the operator: it holds no secret. Fingerprint of the key: {_key_fingerprint(signed)}"


def accept(home: Path, file: Path, fingerprint: str, own: Mapping[str, Scalar], port: int | None) -> Iterator[str]:
    """Sets the node up as an approval says, with what only the site says: `own` settings, and its port.

    `fingerprint`: of the CA, as the operator told it; empty: it is only shown. Settings of an earlier approval are kept
    unless they are given again. Raises FedsimError that says why an approval is not accepted.
    """
    approval, ca = _verified(file)
    if fingerprint and fingerprint.replace(" ", "").replace(":", "").lower() != pki.fingerprint(ca).replace(" ", ""):
        raise FedsimError(f"{file} is of another CA: its fingerprint is {pki.fingerprint(ca)}")
    known = home / CA_CERTIFICATE
    if known.exists() and pki.read_certificate(known) != ca:
        raise FedsimError(f"{file} is of another CA than {known}: to join another federation, use another home folder")
    _check_newer(home, file, approval)
    _check_key(home, file, approval)
    config, before = approval["config"], _present(home)
    kept = {name: before.config[name] for name in OWN if before and name in before.config}
    chosen = port or (before.port if before else machine_config.NODE_PORT)
    about = NodeConfig(
        name=approval["name"],
        superlink=approval["superlink"],
        ca=machine_files.CA,
        key=machine_files.NODE_KEY,
        port=chosen,
        config={"device": "auto", "state-dir": "state", **config, **kept, **own},
        versions=approval["versions"],
        gpu=before.gpu if before else "",
    )
    write_bytes(known, ca.public_bytes(Encoding.PEM))
    write_text(home / machine_files.CA, approval["trust"])
    write_text(home / machine_config.NODE, machine_config.to_json(about))
    write_text(home / LAST, json.dumps(approval, indent=1) + "\n")
    yield f"the CA of the federation has the fingerprint {pki.fingerprint(ca)}"
    if not fingerprint:
        yield "compare it with the operator by telephone before you start the node"
    command = f"{sys.executable} -m fedsim.deploy.agent"
    if agent.running(home) is not None:
        yield f"the node must restart to use it: `{command} stop {home}`, then `{command} start {home}`"
    else:
        yield f"{home} is set up: write {home / policy.FILE}, then start the node with `{command} start {home}`"


def _verified(file: Path) -> tuple[dict[str, Any], x509.Certificate]:
    """The content of an approval and its CA, if its signatures are right."""
    try:
        outer = json.loads(_content(file))
        content, signature = str(outer["content"]), base64.b64decode(outer["signature"])
        issuer = x509.load_pem_x509_certificate(str(outer["issuer"]).encode())
        approval = json.loads(content)
        ca = x509.load_pem_x509_certificate(str(approval["ca"]).encode())
        missing = {"name", "key", "issued", "superlink", "config", "versions", "ca", "trust"} - set(approval)
    except (ValueError, KeyError, TypeError) as error:
        raise FedsimError(f"{file} is not an approval of `fedsim deploy approve`") from error
    if missing:
        raise FedsimError(f"{file} lacks {', '.join(sorted(missing))}: it is of another version of fedsim")
    try:
        key = issuer.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(signature, content.encode(), ec.ECDSA(SHA256()))
        for each in (issuer, *x509.load_pem_x509_certificates(str(approval["trust"]).encode())):
            each.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        raise FedsimError(f"{file} was changed after the operator signed it, or is not signed by its CA") from None
    return approval, ca


def _check_newer(home: Path, file: Path, approval: Mapping[str, Any]) -> None:
    """An old approval would bring back what was revoked since then."""
    last = home / LAST
    if last.exists() and json.loads(last.read_text())["issued"] > approval["issued"]:
        raise FedsimError(f"{file} is older than the approval that is in use: ask the operator for a new one")


def _check_key(home: Path, file: Path, approval: Mapping[str, Any]) -> None:
    key = home / machine_files.NODE_KEY
    if not key.exists() or pki.public_key_of(key).split()[:2] != str(approval["key"]).encode().split()[:2]:
        raise FedsimError(f"{file} is for another key than {key}: make a request with `fedsim deploy join NAME`")


def _present(home: Path) -> NodeConfig | None:
    return machine_config.read_node(home) if (home / machine_config.NODE).exists() else None


# At the operator's


def approve(inventory: Inventory, file: Path, passphrase: Passphrase) -> Iterator[str]:
    """Adds the node of a request, or gives a node that joined before its new key; writes the approval."""
    try:
        asked = x509.load_pem_x509_csr(_content(file))
        (name,) = (str(value.value) for value in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
        valid = asked.is_signature_valid
        public = asked.public_key()
    except (ValueError, TypeError) as error:
        raise FedsimError(f"{file} is not a request of `fedsim deploy join`: {error}") from error
    if not valid or not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != pki.CURVE.name:
        raise FedsimError(f"{file} is not signed by a key that a SuperNode can use: make it anew")
    _check_name(name)
    known = {node.name: node for node in inventory.nodes}
    if name in known and not known[name].joined:
        raise ConfigError(f"{name} is a node whose key is made here: ask the site for a request under another name")
    key = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _check_other_keys(inventory, name, key)
    (inventory.secrets / "nodes").mkdir(mode=0o700, exist_ok=True)
    write_bytes(pki.node_public(inventory.secrets, name), key + b"\n")
    path = inventory.folder / FILE
    if name not in known:
        write_text(path, path.read_text() + joined_template(name, len(known)))
        yield f"added node {name} to {path}; its site keeps its key and starts it"
    else:
        yield f"{name} has a new key"
    yield f"fingerprint of its key: {_key_fingerprint(asked)}"
    yield from write_approvals(read(path), [name], passphrase)
    yield f"fingerprint of the CA: {pki.fingerprint(pki.read_certificate(inventory.secrets / pki.CA))}"
    yield "tell the site the CA's fingerprint on another way than the file; `fedsim deploy up` registers its key"


def write_approvals(inventory: Inventory, names: list[str], passphrase: Passphrase) -> Iterator[str]:
    """Writes the approvals of these nodes as the inventory and the certificates are now."""
    folder = inventory.folder / APPROVALS
    for node in (node for node in inventory.nodes if node.name in names):
        about = machine_files.node_config(inventory, replace(node, data="", model=""))
        ids = {name: about.config[name] for name in about.config if name not in ("device", "state-dir")}
        content = json.dumps(
            {
                "name": node.name,
                "key": pki.node_public(inventory.secrets, node.name).read_text().strip(),
                "issued": time.time(),
                "superlink": about.superlink,
                "config": ids,
                "versions": dict(about.versions),
                "ca": (inventory.secrets / pki.CA).read_text(),
                "trust": (inventory.secrets / pki.TRUST).read_text(),
            }
        )
        signature = base64.b64encode(pki.sign(inventory.secrets, content.encode(), passphrase)).decode()
        issuer = (inventory.secrets / pki.ISSUER).read_text()
        outer = {"content": content, "signature": signature, "issuer": issuer}
        folder.mkdir(exist_ok=True)
        path = folder / f"{node.name}.approval"
        write_text(path, json.dumps(outer, indent=1) + "\n")
        yield f"send {path} to the site: it holds no secret"


def _check_other_keys(inventory: Inventory, name: str, key: bytes) -> None:
    for node in inventory.nodes:
        path = pki.node_public(inventory.secrets, node.name)
        if node.name != name and path.exists() and path.read_bytes().split()[:2] == key.split()[:2]:
            raise ConfigError(f"{node.name} has the same key: every node needs its own")


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name == "server":
        raise ConfigError(f"a node cannot be called {name!r}: use small letters, digits and dashes")


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(LONGEST)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _key_fingerprint(asked: x509.CertificateSigningRequest) -> str:
    public = asked.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return pki.in_groups(sha256(public).hexdigest())
