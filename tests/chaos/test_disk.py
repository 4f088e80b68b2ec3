"""Watched file operations: a process can be killed at each of them, and loses what it did not sync."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fedsim.chaos import disk
from fedsim.chaos.process import Copy, Ended


def in_copy(call: Callable[[], object], tmp_path: Path) -> Ended:
    return Copy(lambda: int(bool(call())), tmp_path / "log.txt").wait(30)


def replace_file(folder: Path, file_sync: bool, folder_sync: bool) -> None:
    """A file that exists is replaced by a new one, as `fedsim.files` does it."""
    with (folder / "new").open("w") as file:
        file.write("new content")
        if file_sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(folder / "new", folder / "file")
    if folder_sync:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    (made / "file").write_text("old content")
    return made


def test_operations_are_numbered_in_order(folder: Path, tmp_path: Path) -> None:
    def call() -> None:
        disk.Watch(folder, lambda number, operation: print(number, operation))
        (tmp_path / "elsewhere").write_text("not watched")
        replace_file(folder, file_sync=True, folder_sync=True)
        (folder / "file").unlink()

    expected = ["1 open new", "2 write new", "3 fsync new", "4 rename new to file", "5 fsync disk", "6 remove file"]
    assert in_copy(call, tmp_path).output.splitlines() == expected


@pytest.mark.parametrize(
    ("number", "half", "files"),
    [
        (1, False, {"file": "old content"}),
        (2, False, {"file": "old content", "new": ""}),
        (2, True, {"file": "old content", "new": "new c"}),
        (4, False, {"file": "old content", "new": "new content"}),
        (5, False, {"file": "new content"}),
    ],
)
def test_a_process_is_killed_at_an_operation(
    number: int, half: bool, files: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    def call() -> None:
        disk.Watch(folder, disk.at(number, disk.kill(half)))
        replace_file(folder, file_sync=True, folder_sync=True)

    assert in_copy(call, tmp_path).code == -9
    assert {path.name: path.read_text() for path in folder.iterdir()} == files


def test_a_full_disk_takes_half_of_a_write_and_nothing_more(folder: Path, tmp_path: Path) -> None:
    def call() -> None:
        disk.Watch(folder, disk.failing(2, errno.ENOSPC, lasting=True))
        for name in ("new", "newer"):
            try:
                (folder / name).write_text("content")
            except OSError as error:
                print(error.errno == errno.ENOSPC, Path(error.filename).name)

    assert in_copy(call, tmp_path).output.splitlines() == ["True new", "True newer"]
    assert (folder / "new").read_text() == "con"
    assert not (folder / "newer").exists()


def contents_after_power_loss(folder: Path, tmp_path: Path, number: int, seed: int, sync: tuple[bool, bool]) -> str:
    """What `file` holds if the power fails before this operation, or right after the last one."""
    (folder / "file").write_text("old content")
    (folder / "new").unlink(missing_ok=True)

    def call() -> None:
        machine = disk.PowerLoss(folder, number, Random(seed))
        replace_file(folder, *sync)
        machine.lose_power()

    assert in_copy(call, tmp_path).code == -9
    return (folder / "file").read_text()


def test_what_is_synced_in_the_right_order_is_there_or_not_but_never_in_part(folder: Path, tmp_path: Path) -> None:
    for seed in range(4):
        found = [contents_after_power_loss(folder, tmp_path, number, seed, (True, True)) for number in range(1, 7)]
        assert set(found) <= {"old content", "new content"}
        assert found[0] == "old content"
        assert found[-1] == "new content", "the folder was synced"


@pytest.mark.parametrize("sync", [(False, True), (True, False)])
def test_what_is_not_synced_can_be_lost(sync: tuple[bool, bool], folder: Path, tmp_path: Path) -> None:
    found = {contents_after_power_loss(folder, tmp_path, 99, seed, sync) for seed in range(12)}
    lost = {"old content"} if sync[0] else {"", "new content", "\0" * 11}
    assert found & lost
    assert found != {"new content"}
