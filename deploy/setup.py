"""`fedsim deploy init`: writes an inventory to edit, and the certificates and keys for it. Existing ones are kept."""

from collections.abc import Callable, Iterator
from functools import cache as once
from pathlib import Path

from fedsim.deploy import operators, pki
from fedsim.deploy.inventory import FILE, NAME, Inventory, node_template, read, template
from fedsim.deploy.pki import Passphrase
from fedsim.errors import ConfigError, FedsimError
from fedsim.files import remove_leftovers, write_text

TRIAL = (
    "this is a set-up for trials: all keys are made on this machine, and that of the CA has no passphrase. "
    "`--passphrase` gives it one; sites make their own keys with `fedsim deploy join`"
)


def init(
    folder: Path,
    name: str,
    host: str,
    nodes: int,
    add: list[str],
    rotate: bool,
    passphrase: Passphrase = pki.no_passphrase,
    encrypt: Callable[[], bytes] | None = None,
) -> Iterator[str]:
    """Yields a line about each thing it did.

    name, host, nodes  for a new inventory: of the federation, of the server, the number of nodes
    add                names of further nodes
    rotate             replace the server's certificate and every node's key that is kept here
    passphrase         of the CA's key, asked for if it is needed
    encrypt            asks for a new passphrase: the CA's key gets it
    """
    if encrypt:
        encrypt = passphrase = once(encrypt)
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, template(name, host, 0 if add else nodes))
        yield f"wrote {path}: edit it, then run `fedsim deploy up`"
    for node in add:
        yield _add_node(path, node)
    inventory = read(path, check=bool(read(path, check=False).nodes))  # nodes may join later
    inventory.secrets.mkdir(mode=0o700, exist_ok=True)
    for secrets in (inventory.secrets, inventory.secrets / "nodes"):
        remove_leftovers(secrets)
    write_text(inventory.secrets / ".gitignore", "*\n")
    yield from _create_ca(inventory, encrypt)
    yield from _create_operator(inventory)
    yield from _create_server_certificate(inventory, rotate, passphrase)
    yield from _create_node_keys(inventory, rotate)
    yield from _remove_old_keys(inventory)


def _add_node(path: Path, name: str) -> str:
    if not NAME.fullmatch(name):
        raise ConfigError(f"a node cannot be called {name!r}: use small letters, digits and dashes")
    known = [node.name for node in read(path, check=False).nodes]  # there may be none yet
    if name in known:
        return f"node {name} is in {path} already"
    write_text(path, path.read_text() + node_template(name, len(known)))
    return f"added node {name} to {path}"


def _create_ca(inventory: Inventory, encrypt: Callable[[], bytes] | None) -> Iterator[str]:
    folder = inventory.secrets
    if not (folder / pki.CA).exists():
        chosen = encrypt() if encrypt else None
        pki.create_ca(folder, inventory.name, chosen)
        yield f"created a CA, {folder / pki.CA}; its key stays on this machine"
        if chosen is None:
            yield TRIAL
    elif not (folder / pki.ISSUER).exists():
        raise FedsimError(f"{folder / pki.CA} was made by an earlier version: remove {folder} and run it again")
    elif encrypt:
        for path in pki.encrypt_keys(folder, encrypt()):
            yield f"{path} has a passphrase now"


def _create_operator(inventory: Inventory) -> Iterator[str]:
    """The first one, who may do everything and may add others."""
    if operators.read(inventory.folder) or inventory.operator:
        return
    key = inventory.secrets / "operators" / f"{operators.FIRST}.key"
    public = operators.public_key(key) if key.exists() else operators.create_key(key)
    operators.add(inventory.folder, operators.FIRST, "admin", public)
    yield f"created the operator {operators.FIRST}, whose key {key} signs your commands"


def _create_server_certificate(inventory: Inventory, rotate: bool, passphrase: Passphrase) -> Iterator[str]:
    path, wanted = inventory.secrets / pki.SERVER, {inventory.server.host, *inventory.server.names}
    if path.exists() and not rotate and wanted <= set(pki.valid_names(pki.read_certificate(path))):
        return
    done = "renewed" if path.exists() else "created"
    hosts = [inventory.server.host, *inventory.server.names]
    pki.issue_server_certificate(inventory.secrets, hosts, passphrase=passphrase)
    yield f"{done} the server's certificate for {', '.join(sorted(wanted))}"


def _create_node_keys(inventory: Inventory, rotate: bool) -> Iterator[str]:
    for node in inventory.managed:
        known = pki.node_key(inventory.secrets, node.name).exists()
        if rotate or not known:
            pki.create_node_key(inventory.secrets, node.name)
            yield f"{'renewed' if known else 'created'} the key of {node.name}"


def _remove_old_keys(inventory: Inventory) -> Iterator[str]:
    names = {node.name for node in inventory.nodes}
    for path in sorted((inventory.secrets / "nodes").glob("*.pub")):
        if path.stem not in names:
            path.unlink()
            path.with_suffix(".key").unlink(missing_ok=True)
            yield f"removed the key of {path.stem}, which is no longer a node"


def new_intermediate(inventory: Inventory, revoke: bool, passphrase: Passphrase) -> Iterator[str]:
    """Replaces the intermediate CA. `revoke`: nodes will trust nothing that was issued before; the server gets a new
    certificate. Yields a line about each thing it did."""
    secret = once(passphrase)
    pki.create_issuer(inventory.secrets, secret, keep_trusted=not revoke)
    if not revoke:
        yield "made an intermediate; `fedsim deploy up` tells the nodes, after that `init --rotate` uses it for the server"
        return
    hosts = [inventory.server.host, *inventory.server.names]
    pki.issue_server_certificate(inventory.secrets, hosts, passphrase=secret)
    yield "made an intermediate and a server's certificate; `fedsim deploy up` makes the nodes refuse all earlier ones"
