"""The inventory of the last `fedsim deploy up`, to find machines that were taken out of the inventory but may still run."""

from fedsim.deploy.hosts import Host
from fedsim.deploy.inventory import FILE, Inventory, read
from fedsim.files import write_bytes

PREVIOUS = ".up.toml"  # a copy, beside the inventory


def save(inventory: Inventory) -> None:
    write_bytes(inventory.folder / PREVIOUS, (inventory.folder / FILE).read_bytes())


def delete(inventory: Inventory) -> None:
    (inventory.folder / PREVIOUS).unlink(missing_ok=True)


def removed_hosts(inventory: Inventory) -> list[Host]:
    """Hosts of the last `up` that this inventory does not have, nodes before the server."""
    previous = inventory.folder / PREVIOUS
    if not previous.exists():
        return []
    present = {_location(host) for host in _hosts(inventory)}
    return [host for host in _hosts(read(previous, check=False)) if _location(host) not in present]


def _hosts(inventory: Inventory) -> list[Host]:
    nodes = [Host(inventory, node.name, node) for node in inventory.managed]
    return [*nodes, Host(inventory, "server", inventory.server)]


def _location(host: Host) -> tuple[str, str, str]:
    """The machine and the home folder; one agent runs in each."""
    return host.machine.ssh, host.machine.via, host.folder
