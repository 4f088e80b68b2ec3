"""The people who may use a federation: their keys, their roles, and the tokens with which they ask the SuperLink.

    operators.toml             beside the inventory: name, role and public key of each
    secrets/operators/NAME.key the private key of an operator, on the operator's own machine

A command is signed where it is given: the token names the operator, the verb, the federation and the time, and for the start
of a run the hash of the request. It is checked by the SuperLink itself (see `fedsim.deploy.superlink`), so an account on the
server's machine is not enough to use it.
"""

import base64
import json
import secrets
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedsim.deploy.inventory import NAME, Inventory
from fedsim.errors import ConfigError, FedsimError, unknown
from fedsim.files import PRIVATE, write_bytes, write_text

FILE = "operators.toml"
FIRST = "admin"  # the operator that `fedsim deploy init` makes
SERVICE, SERVICE_KEY = "service", "service.key"  # the server itself, which may register nodes; key in its home folder
READ = ("list-nodes", "list-runs", "stream-logs")
RUN = (*READ, "start-run", "stop-run")
ADMIN = (*RUN, "register-node", "unregister-node")
ROLES: Mapping[str, tuple[str, ...]] = {"read": READ, "run": RUN, "admin": ADMIN}  # -> methods of the Control API
OF_SERVICE = ("list-nodes", "register-node", "unregister-node")
VERBS: Mapping[str, tuple[str, ...]] = {  # of `fedsim.deploy.control` -> the methods it calls
    "ready": ("list-nodes",),
    "nodes": ("list-nodes",),
    "runs": ("list-runs",),
    "register": ("list-nodes", "register-node", "unregister-node"),
    "start": ("start-run",),
    "follow": ("stream-logs", "list-runs"),
    "stop": ("stop-run",),
}
LIFETIME, FOLLOW_LIFETIME = 300.0, 30 * 86400.0  # seconds a token is valid; a run may take long
CLOCKS = 60.0  # seconds by which the clocks of operator and server may differ
HEAD = """\
# Who may use this federation. Roles: read (status, logs), run (also start and stop runs), admin (also register nodes).
# `fedsim deploy up` tells the server.
"""


@dataclass(frozen=True)
class Operator:
    name: str
    role: str
    key: str  # public, in OpenSSH format

    @property
    def methods(self) -> tuple[str, ...]:
        return OF_SERVICE if self.role == SERVICE else ROLES[self.role]


@dataclass(frozen=True)
class Claims:
    """What a token says."""

    operator: str
    federation: str
    verb: str
    issued: float
    expires: float
    id: str
    digest: str = ""  # of the request, for the start of a run


class TokenRefused(FedsimError):
    """A token is not accepted; the message says why."""


def create_key(path: Path) -> str:
    """Writes a private key, readable by its owner alone, and the public one beside it; returns the public key."""
    if path.exists():
        raise ConfigError(f"{path} exists already: remove it, or choose another file")
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), PRIVATE)
    public = public_key(path)
    write_text(path.with_suffix(".pub"), f"{public}\n")
    return public


def public_key(path: Path) -> str:
    """The public half of a private key file, in OpenSSH format."""
    return _read_key(path).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def read(folder: Path) -> dict[str, Operator]:
    """The operators of a federation by name; raises ConfigError that names the file and what is wrong."""
    path = folder / FILE
    try:
        tree = tomllib.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        return {name: _operator(name, values) for name, values in tree.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def write(folder: Path, operators: Mapping[str, Operator]) -> None:
    blocks = [f'[{each.name}]\nrole = "{each.role}"\nkey = "{each.key}"\n' for each in operators.values()]
    write_text(folder / FILE, "\n".join([HEAD, *blocks]))


def add(folder: Path, name: str, role: str, key: str) -> None:
    """Adds or changes an operator; `key`: the public key, or a file with it."""
    file = Path(key).expanduser()
    text = file.read_text() if not key.startswith("ssh-") and file.exists() else key
    write(folder, {**read(folder), name: _operator(name, {"role": role, "key": " ".join(text.split()[:2])})})


def remove(folder: Path, name: str) -> None:
    known = read(folder)
    if name not in known:
        unknown("operator", name, known)
    if not any(each.role == "admin" for each in known.values() if each.name != name):
        raise ConfigError(f"{name} is the only admin: add another one first")
    write(folder, {other: each for other, each in known.items() if other != name})


def to_json(operators: Mapping[str, Operator]) -> str:
    """As the server gets it."""
    return json.dumps({each.name: {"role": each.role, "key": each.key} for each in operators.values()}, indent=1) + "\n"


def from_json(text: str) -> dict[str, Operator]:
    return {name: _operator(name, values) for name, values in json.loads(text).items()}


def key_file(inventory: Inventory) -> Path:
    """The private key that commands on this machine are signed with; raises ConfigError if it is not clear which."""
    if inventory.operator:
        return inventory.folder / Path(inventory.operator).expanduser()
    found = sorted((inventory.secrets / "operators").glob("*.key"))
    if len(found) != 1:
        told = f"there are several: {', '.join(path.name for path in found)}" if found else "there is none"
        raise ConfigError(
            f"commands are signed with the key of an operator in {inventory.secrets / 'operators'}, and {told}. "
            'Name one with operator = "NAME.key" in federation.toml, or run `fedsim deploy init`'
        )
    return found[0]


def token(key: Path, federation: str, verb: str, content: bytes = b"", now: float | None = None) -> str:
    """Signs a verb of `fedsim.deploy.control`; the operator's name is that of the key file."""
    issued = time.time() if now is None else now
    lifetime = FOLLOW_LIFETIME if verb == "follow" else LIFETIME
    digest = sha256(content).hexdigest() if verb == "start" else ""
    claims = Claims(key.stem, federation, verb, issued, issued + lifetime, secrets.token_hex(16), digest)
    text = json.dumps(vars(claims)).encode()
    return f"{_encode(text)}.{_encode(_read_key(key).sign(text))}"


def check_token(text: str, operators: Mapping[str, Operator], federation: str, now: float | None = None) -> Claims:
    """What a valid token says; raises TokenRefused with the reason."""
    moment = time.time() if now is None else now
    try:
        signed, signature = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in text.split("."))
        claims = Claims(**json.loads(signed))
        operator = operators.get(claims.operator)
    except (ValueError, TypeError, RecursionError):
        raise TokenRefused("the call brings no token of an operator") from None
    if operator is None:
        raise TokenRefused(f"{str(claims.operator)[:40]!r} is not an operator of this federation")
    try:
        _public(operator.key).verify(signature, signed)
    except InvalidSignature:
        raise TokenRefused(f"the signature is not by the key of operator {operator.name!r}") from None
    if claims.federation != federation:
        raise TokenRefused(f"the token is for the federation {claims.federation!r}, not for {federation!r}")
    if claims.issued > moment + CLOCKS:
        ahead = claims.issued - moment
        raise TokenRefused(
            f"the token is of a time that is {ahead:.0f} s ahead of the server's clock: compare the clocks"
        )
    if moment > claims.expires + CLOCKS:
        raise TokenRefused(f"the token expired {moment - claims.expires:.0f} s ago: compare the clocks")
    return claims


def _operator(name: str, values: object) -> Operator:
    if not NAME.fullmatch(name) or name == SERVICE:
        raise ConfigError(f"an operator cannot be called {name!r}: use small letters, digits and dashes")
    if not isinstance(values, dict) or set(values) != {"role", "key"}:
        raise ConfigError(f"operator {name} needs a role and a key, and nothing else")
    if values["role"] not in ROLES:
        unknown(f"role of operator {name}", str(values["role"]), ROLES)
    _public(str(values["key"]))
    return Operator(name, str(values["role"]), str(values["key"]))


def _public(openssh: str) -> Ed25519PublicKey:
    try:
        key = load_ssh_public_key(openssh.encode())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{openssh[:40]!r} is not a public key of the kind ssh-ed25519")
    return key


def _read_key(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise FedsimError(f"{path} is not the key of an operator: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise FedsimError(f"{path} is not a key of the kind ed25519")
    return key


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
