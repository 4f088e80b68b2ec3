"""How long the audit logs of all machines were when they were last verified: a log that was cut off since then is found."""

from fedsim.deploy.audit import Verified
from fedsim.deploy.inventory import Inventory
from fedsim.files import read_json, write_json

FILE = ".audit.json"  # beside the inventory


def read(inventory: Inventory) -> dict[str, tuple[int, str]]:
    """By machine: the number of lines and the hash of the last one; raises DamagedError if the file was changed."""
    path = inventory.folder / FILE
    found = read_json(path) if path.exists() else {}
    return {name: (int(lines), str(head)) for name, (lines, head) in found.items()}


def remember(inventory: Inventory, found: dict[str, Verified]) -> None:
    """Keeps what was verified; of the other machines what is known stays."""
    _write(inventory, {**read(inventory), **{name: (log.lines, log.head) for name, log in found.items()}})


def forget(inventory: Inventory, names: list[str]) -> None:
    """Of machines whose home folder was removed with its log."""
    _write(inventory, {name: known for name, known in read(inventory).items() if name not in names})


def _write(inventory: Inventory, known: dict[str, tuple[int, str]]) -> None:
    if known:
        write_json(inventory.folder / FILE, known)
    else:
        (inventory.folder / FILE).unlink(missing_ok=True)
