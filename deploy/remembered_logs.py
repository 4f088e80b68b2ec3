"""How long the audit logs of all machines were when they were last verified: a log that was cut off since then is found."""

import json

from fedsim.deploy.audit import Verified
from fedsim.deploy.inventory import Inventory
from fedsim.files import write_json

FILE = ".audit.json"  # beside the inventory


def read(inventory: Inventory) -> dict[str, tuple[int, str]]:
    """By machine: the number of lines and the hash of the last one."""
    path = inventory.folder / FILE
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: (int(lines), str(head)) for name, (lines, head) in found.items()}


def remember(inventory: Inventory, found: dict[str, Verified]) -> None:
    """Keeps what was verified; of the other machines what is known stays."""
    write_json(inventory.folder / FILE, {**read(inventory), **{n: (v.lines, v.head) for n, v in found.items()}})


def forget(inventory: Inventory, names: list[str]) -> None:
    """Of machines whose home folder was removed with its log."""
    write_json(inventory.folder / FILE, {n: known for n, known in read(inventory).items() if n not in names})
