"""`fedsim deploy init`: writes an inventory to edit, and the certificates and keys for it. Existing ones are kept."""

from collections.abc import Iterator
from pathlib import Path

from fedsim.deploy import operators, pki
from fedsim.deploy.inventory import FILE, NAME, Inventory, node_template, read, template
from fedsim.errors import ConfigError
from fedsim.files import remove_leftovers, write_text


def init(folder: Path, name: str, host: str, nodes: int, add: list[str], rotate: bool) -> Iterator[str]:
    """Yields a line about each thing it did.

    name, host, nodes  for a new inventory: of the federation, of the server, the number of nodes
    add                names of further nodes
    rotate             replace the server's certificate and every node's key
    """
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, template(name, host, 0 if add else nodes))
        yield f"wrote {path}: edit it, then run `fedsim deploy up`"
    for node in add:
        yield _add_node(path, node)
    inventory = read(path)
    inventory.secrets.mkdir(mode=0o700, exist_ok=True)
    for secrets in (inventory.secrets, inventory.secrets / "nodes"):
        remove_leftovers(secrets)
    write_text(inventory.secrets / ".gitignore", "*\n")
    yield from _create_ca(inventory)
    yield from _create_operator(inventory)
    yield from _create_server_certificate(inventory, rotate)
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


def _create_ca(inventory: Inventory) -> Iterator[str]:
    if not (inventory.secrets / pki.CA).exists():
        pki.create_ca(inventory.secrets, inventory.name)
        yield f"created a CA, {inventory.secrets / pki.CA}; its key stays on this machine"


def _create_operator(inventory: Inventory) -> Iterator[str]:
    """The first one, who may do everything and may add others."""
    if operators.read(inventory.folder) or inventory.operator:
        return
    key = inventory.secrets / "operators" / f"{operators.FIRST}.key"
    public = operators.public_key(key) if key.exists() else operators.create_key(key)
    operators.add(inventory.folder, operators.FIRST, "admin", public)
    yield f"created the operator {operators.FIRST}, whose key {key} signs your commands"


def _create_server_certificate(inventory: Inventory, rotate: bool) -> Iterator[str]:
    path, wanted = inventory.secrets / pki.SERVER, {inventory.server.host, *inventory.server.names}
    if path.exists() and not rotate and wanted <= set(pki.valid_names(pki.read_certificate(path))):
        return
    done = "renewed" if path.exists() else "created"
    pki.issue_server_certificate(inventory.secrets, [inventory.server.host, *inventory.server.names])
    yield f"{done} the server's certificate for {', '.join(sorted(wanted))}"


def _create_node_keys(inventory: Inventory, rotate: bool) -> Iterator[str]:
    for node in inventory.nodes:
        known = pki.node_key(inventory.secrets, node.name).exists()
        if rotate or not known:
            pki.create_node_key(inventory.secrets, node.name)
            yield f"{'renewed' if known else 'created'} the key of {node.name}"


def _remove_old_keys(inventory: Inventory) -> Iterator[str]:
    names = {node.name for node in inventory.nodes}
    for path in (inventory.secrets / "nodes").glob("*.key"):
        if path.stem not in names:
            path.unlink()
            path.with_suffix(".pub").unlink(missing_ok=True)
            yield f"removed the key of {path.stem}, which is no longer a node"
