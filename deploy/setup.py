"""`fedsim deploy init`: an inventory to edit, and the certificates and keys it asks for. What is there already is kept."""

from collections.abc import Iterator
from pathlib import Path

from deploy import pki
from deploy.inventory import FILE, NAME, Inventory, node_template, read, template
from fedsim.errors import ConfigError


def init(folder: Path, name: str, host: str, nodes: int, add: list[str], rotate: bool) -> Iterator[str]:
    """Says what it did, step by step."""
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(template(name, host, 0 if add else nodes))
        yield f"wrote {path}: edit it, then run `fedsim deploy up`"
    for node in add:
        yield _add_node(path, node)
    inventory = read(path)
    inventory.secrets.mkdir(mode=0o700, exist_ok=True)
    (inventory.secrets / ".gitignore").write_text("*\n")
    yield from _authority(inventory)
    yield from _server(inventory, rotate)
    yield from _nodes(inventory, rotate)


def _add_node(path: Path, name: str) -> str:
    if not NAME.fullmatch(name):
        raise ConfigError(f"a node cannot be called {name!r}: use small letters, digits and dashes")
    text = path.read_text()
    try:
        known = [node.name for node in read(path).nodes]
    except ConfigError:
        known = []  # none yet
    if name in known:
        return f"node {name} is in {path} already"
    path.write_text(text + node_template(name, len(known)))
    return f"added node {name} to {path}"


def _authority(inventory: Inventory) -> Iterator[str]:
    if not (inventory.secrets / pki.CA).exists():
        pki.create_authority(inventory.secrets, inventory.name)
        yield f"made an authority, {inventory.secrets / pki.CA}; its key stays here"


def _server(inventory: Inventory, rotate: bool) -> Iterator[str]:
    path, wanted = inventory.secrets / pki.SERVER, {inventory.server.host, *inventory.server.names}
    if path.exists() and not rotate and wanted <= pki.names_of(pki.read_certificate(path)):
        return
    yield f"{'renewed' if path.exists() else 'made'} the server's certificate for {', '.join(sorted(wanted))}"
    pki.issue_server(inventory.secrets, [inventory.server.host, *inventory.server.names])


def _nodes(inventory: Inventory, rotate: bool) -> Iterator[str]:
    for node in inventory.nodes:
        known = pki.node_key(inventory.secrets, node.name).exists()
        if rotate or not known:
            pki.create_node_key(inventory.secrets, node.name)
            yield f"{'renewed' if known else 'made'} the key of {node.name}"
    names = {node.name for node in inventory.nodes}
    for path in (inventory.secrets / "nodes").glob("*.key"):
        if path.stem not in names:
            path.unlink()
            path.with_suffix(".pub").unlink(missing_ok=True)
            yield f"removed the key of {path.stem}, which is no node any more"
