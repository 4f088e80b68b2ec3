"""The same federation for those who run things otherwise: complete files for Docker Compose, systemd or Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

from deploy.inventory import Inventory


def render(inventory: Inventory, kind: str, folder: Path) -> Iterator[Path]:
    """Writes the files and says which."""
    raise NotImplementedError
