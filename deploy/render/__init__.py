"""The same federation for those who run things otherwise: complete files for Docker Compose, systemd or Kubernetes."""

import os
from collections.abc import Iterator
from pathlib import Path

from deploy import pki
from deploy.files import write_private, write_public
from deploy.inventory import Inventory
from deploy.render import compose, kubernetes, systemd
from deploy.render.output import File
from fedsim.errors import FedsimError, unknown

KINDS = {"compose": compose.files, "systemd": systemd.files, "kubernetes": kubernetes.files}
WRITTEN = ".rendered"  # what the last rendering wrote, to take away what the next one does not


def render(inventory: Inventory, kind: str, folder: Path) -> Iterator[Path]:
    """Writes the files and says which. What is impossible is refused before the first one."""
    if kind not in KINDS:
        unknown("kind of files", kind, KINDS)
    pki.check_complete(inventory.secrets, [node.name for node in inventory.nodes])
    _check_name(inventory)
    files = {**KINDS[kind](inventory), ".gitignore": File.of("*\n")}  # private keys are among them
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder, set(files))
    for name, file in files.items():
        (write_private if file.private else write_public)(folder / name, file.content)
        if file.owner is not None and os.getuid() == 0:
            os.chown(folder / name, file.owner, file.owner)
        yield folder / name


def _check_name(inventory: Inventory) -> None:
    certificate = inventory.secrets / pki.SERVER
    if pki.INSIDE not in pki.names_of(pki.read_certificate(certificate)):
        raise FedsimError(f"{certificate} is not valid for {pki.INSIDE}: `fedsim deploy init --rotate` renews it")


def _clear(folder: Path, wanted: set[str]) -> None:
    """A node that left, its key, a wheel of another version: files of the last rendering that are none of this one."""
    listed = folder / WRITTEN
    for name in set(listed.read_text().splitlines() if listed.exists() else []) - wanted:
        (folder / name).unlink(missing_ok=True)
    listed.write_text("\n".join(sorted(wanted)) + "\n")
