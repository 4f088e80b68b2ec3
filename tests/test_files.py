"""Files: complete or absent, on the disk before anything relies on them, private from the first moment, checked."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from fedsim import files
from fedsim.errors import DamagedError, StorageError
from fedsim.files import (
    PRIVATE,
    new_folder,
    read_json,
    read_npz,
    remove_leftovers,
    sync,
    write_bytes,
    write_json,
    write_npy,
    write_npz,
    write_text,
)


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
    left_behind = tmp_path / f".node.key.{os.getpid()}.unfinished"  # by a process that was killed
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

    with pytest.raises(StorageError, match=f"cannot write {path}: gone"):
        write_npz(path, {"a": 1, "w": Unreadable()})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was brought to the disk and renamed, in order: the kind of a file, or "rename"."""
    found: list[str] = []
    fsync, replace = os.fsync, os.replace

    def observed_sync(handle: int) -> None:
        found.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def observed_rename(source: Path, target: Path) -> None:
        found.append("rename")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", observed_sync)
    monkeypatch.setattr(files.os, "replace", observed_rename)
    return found


WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_text(path, "x"),
    "json": lambda path: write_json(path, {"x": 1}),
    "npz": lambda path: write_npz(path, {"x": np.ones(3)}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    kind: str, tmp_path: Path, operations: list[str]
) -> None:
    WRITERS[kind](tmp_path / "file")
    assert operations == ["file", "rename", "folder"]


def test_a_file_in_new_folders_is_found_after_a_power_failure(tmp_path: Path, operations: list[str]) -> None:
    write_npz(tmp_path / "a" / "b" / "file.npz", {"x": np.ones(3)})
    assert operations == ["folder", "folder", "file", "rename", "folder"]


def test_files_that_need_not_last_yet_are_synced_together(tmp_path: Path, operations: list[str]) -> None:
    paths = [tmp_path / name for name in ("one.npz", "two.npz")]
    for path in paths:
        write_npz(path, {"x": np.ones(3)}, durable=False)
    assert operations == ["rename", "rename"]
    sync(paths)
    assert operations[2:] == ["file", "file", "folder"]


def test_a_new_folder_is_on_the_disk_with_everything_in_it(tmp_path: Path, operations: list[str]) -> None:
    with new_folder(tmp_path / "folder") as unfinished:
        write_npy(unfinished / "x.npy", [np.ones(2), np.zeros(1)], np.dtype(np.int16), (3,))
    assert operations == ["rename", "file", "folder", "rename", "folder"]
    assert np.load(tmp_path / "folder" / "x.npy", mmap_mode="r").tolist() == [1, 1, 0]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """/dev/full takes no byte."""
    (tmp_path / "full").symlink_to("/dev/full")
    with (
        pytest.raises(StorageError, match=f"cannot write {tmp_path}/full: No space left on device"),
        files.naming(tmp_path / "full"),
    ):
        (tmp_path / "full").write_text("x")


def test_leftovers_of_killed_processes_go_and_nothing_else(tmp_path: Path) -> None:
    ours = [tmp_path / name for name in (".model.npz.17.unfinished", ".page.html.9.unfinished")]
    others = [tmp_path / name for name in (".model.npz", ".hidden.unfinished", "model.npz.17.unfinished", ".a.17")]
    for path in [*ours, *others]:
        path.touch()
    remove_leftovers(tmp_path, "model.npz", "summary.json")
    assert [path.exists() for path in ours] == [False, True]
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "nothing")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_arrays_come_back(tmp_path: Path) -> None:
    given: dict[str, Any] = {"a": np.arange(6).reshape(2, 3)[:, ::2], "b": np.array("text"), "c": np.zeros((0, 4))}
    write_npz(tmp_path / "x.npz", given)
    for read in (read_npz(tmp_path / "x.npz", sealed=True), dict(np.load(tmp_path / "x.npz"))):
        assert list(read) == ["a", "b", "c"]
        for name, array in given.items():
            assert (read[name].dtype, read[name].tolist()) == (array.dtype, array.tolist())


def test_a_file_of_another_program_has_no_checksum(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    assert read_npz(tmp_path / "x.npz")["a"].tolist() == [1, 1, 1]
    with pytest.raises(DamagedError, match=r"x\.npz is damaged: it has no checksum at its end"):
        read_npz(tmp_path / "x.npz", sealed=True)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(DamagedError, match=r"x\.npz is damaged"):
        read_npz(tmp_path / "x.npz")


def test_what_is_not_an_array_in_an_archive_is_damage(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", b"no array")
    with pytest.raises(DamagedError, match=r"x\.npz is damaged: a in it is not an array"):
        read_npz(tmp_path / "x.npz")


def test_a_json_text_is_checked_and_readable_for_everyone(tmp_path: Path) -> None:
    path, value = tmp_path / "x.json", {"seed": 7, "inner": {"list": [1, {}], "text": 'with "quotes" and ü'}}
    write_json(path, value)
    assert read_json(path) == value
    content = path.read_text()
    assert {key: entry for key, entry in json.loads(content).items() if key != "crc"} == value
    path.write_text(json.dumps(value))
    assert read_json(path) == value
    for damaged in ("", "{", "[1]", content[:-3], content.replace("7", "8"), content.replace("quotes", "quote5")):
        path.write_text(damaged)
        with pytest.raises(DamagedError, match=r"x\.json is damaged"):
            read_json(path)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "y.json")
