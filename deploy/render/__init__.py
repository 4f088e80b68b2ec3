"""`fedsim deploy render`: complete files to run a federation with Docker Compose, systemd or Kubernetes."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedsim.deploy import pki
from fedsim.deploy.inventory import Inventory
from fedsim.deploy.render import compose, kubernetes, systemd
from fedsim.deploy.render.output import File
from fedsim.errors import FedsimError, unknown
from fedsim.files import PRIVATE, PUBLIC, write_bytes, write_text

KINDS = {"compose": compose.files, "systemd": systemd.files, "kubernetes": kubernetes.files}
WRITTEN = ".rendered"  # the list of files that the last rendering wrote


def render(inventory: Inventory, kind: str, folder: Path, base: str = "") -> Iterator[Path]:
    """Writes the files of one kind into `folder` and yields their paths; errors are raised before the first is written.

    `base`: the image that containers are made from, with its digest.
    """
    if kind not in KINDS:
        unknown("kind of files", kind, KINDS)
    pki.check_complete(inventory.secrets, [node.name for node in inventory.managed])
    _check_certificate(inventory)
    files = {**KINDS[kind](inventory, base), ".gitignore": File.of("*\n")}  # there are private keys among them
    folder.mkdir(parents=True, exist_ok=True)
    _remove_outdated(folder, set(files))
    for name, file in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(path, file.content, PRIVATE if file.private else PUBLIC)
        if file.owner is not None and os.getuid() == 0:
            os.chown(path, file.owner, file.owner)
        yield path


def _check_certificate(inventory: Inventory) -> None:
    certificate = inventory.secrets / pki.SERVER
    if pki.CONTAINER_HOST not in pki.valid_names(pki.read_certificate(certificate)):
        raise FedsimError(
            f"{certificate} is not valid for {pki.CONTAINER_HOST}: `fedsim deploy init --rotate` renews it"
        )


def _remove_outdated(folder: Path, wanted: set[str]) -> None:
    """Removes files of the last rendering that this one does not have: of a removed node, a wheel of another version."""
    listed = folder / WRITTEN
    for name in set(listed.read_text().splitlines() if listed.exists() else []) - wanted:
        (folder / name).unlink(missing_ok=True)
    write_text(listed, "\n".join(sorted(wanted)) + "\n")
