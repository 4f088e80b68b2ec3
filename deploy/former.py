"""Machines that the last `up` used and the inventory no longer has: nothing may go on there unseen."""

import shutil

from deploy.hosts import Host
from deploy.inventory import FILE, Inventory, read

LAST = ".up.toml"  # the inventory as the last `up` found it, beside the present one


def remember(inventory: Inventory) -> None:
    shutil.copyfile(inventory.folder / FILE, inventory.folder / LAST)


def forget(inventory: Inventory) -> None:
    (inventory.folder / LAST).unlink(missing_ok=True)


def former(inventory: Inventory) -> list[Host]:
    """Nodes come before a server."""
    last = inventory.folder / LAST
    present = {_place(host) for host in _hosts(inventory)}
    return [host for host in _hosts(read(last, sound=False)) if _place(host) not in present] if last.exists() else []


def _hosts(inventory: Inventory) -> list[Host]:
    nodes = [Host(inventory, node.name, node) for node in inventory.nodes]
    return [*nodes, Host(inventory, "server", inventory.server)]


def _place(host: Host) -> tuple[str, str, str]:
    """What tells two apart: an agent lives in a home folder on a machine."""
    return host.machine.ssh, host.machine.via, host.folder
