"""Atomic writes: a file is complete or absent, and private from the first moment."""

import os
from pathlib import Path

import pytest

from fedsim import files
from fedsim.files import PRIVATE, write_bytes, write_npz


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def temporary_modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The modes of temporary files at the moment when they are renamed."""
    found: list[int] = []
    replace = os.replace

    def observed(source: Path, target: Path) -> None:
        found.append(mode(source))
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", observed)
    return found


def test_a_private_file_is_never_readable_by_others(tmp_path: Path, temporary_modes: list[int]) -> None:
    path = tmp_path / "node.key"
    left_behind = tmp_path / f".node.key.{os.getpid()}"  # by a process that was killed
    for existing in (path, left_behind):
        existing.write_text("old")
        existing.chmod(0o644)
    write_bytes(path, b"new", PRIVATE)
    assert temporary_modes == [0o600]
    assert (mode(path), path.read_bytes()) == (0o600, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_of_other_files_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "ca.crt", b"public")
    finally:
        os.umask(before)
    assert mode(tmp_path / "ca.crt") == 0o640


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write_npz(path, {"w": 1})
    before = path.read_bytes()

    class Unreadable:
        def __array__(self, *_: object, **__: object) -> None:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_npz(path, {"a": 1, "w": Unreadable()})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
