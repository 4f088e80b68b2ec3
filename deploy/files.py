"""Files that others must not read: never readable by them, not even for a moment."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    _write(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    _write(path, content, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    os.replace(beside, path)
