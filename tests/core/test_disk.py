"""What a node keeps on its disk, and which of it a resumed run may use."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.disk import Disk
from fedsim.errors import FedsimError
from fedsim.payload import Downlink, Job, Memory, Run

ID = "0123456789abcdef"


def memory(value: float) -> Memory:
    return Memory({"own": np.full(3, value, np.float32)}, {"alpha": value / 3, "jobs": int(value)})


def disk(root: Path, *resumed: int, saved: int = 0) -> Disk:
    return Disk(root, Run(ID, resumed, saved), 7)


def job(step: int, turn: int = 0) -> Job:
    return Job(7, step, Downlink(), turn=turn)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ID / "client-0007").iterdir())


def test_a_memory_lasts(tmp_path: Path) -> None:
    assert disk(tmp_path).read() == Memory()
    disk(tmp_path).write(job(4), memory(2))
    again = disk(tmp_path).read()
    assert again.vectors["own"].tolist() == [2, 2, 2]
    assert again.numbers == {"alpha": 2 / 3, "jobs": 2}
    assert Disk(tmp_path, Run("ff"), 7).read() == Memory()
    assert Disk(tmp_path, Run(ID), 8).read() == Memory()


def test_three_versions_are_enough(tmp_path: Path) -> None:
    for step in range(9):
        disk(tmp_path, saved=step // 3 * 3).write(job(step), memory(step))
    assert names(tmp_path) == [f"step-00000{step}-0-0.npz" for step in (5, 7, 8)]
    assert disk(tmp_path).read().numbers["jobs"] == 8
    assert disk(tmp_path, 6).read().numbers["jobs"] == 5  # the checkpoint was written before step 6 began


def test_a_job_starts_from_the_same_memory_however_often_it_is_done(tmp_path: Path) -> None:
    disk(tmp_path).write(job(3), memory(3))
    for _ in range(3):
        assert disk(tmp_path).read(job(4, turn=1)).numbers["jobs"] == 3
        disk(tmp_path).write(job(4, turn=1), memory(4))
    assert disk(tmp_path).read(job(4, turn=2)).numbers["jobs"] == 4
    assert disk(tmp_path).read(job(3)) == Memory()
    assert disk(tmp_path).read().numbers["jobs"] == 4


def test_what_a_stopped_run_did_after_its_checkpoint_is_forgotten(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), memory(1))
    disk(tmp_path, saved=2).write(job(3), memory(3))
    assert disk(tmp_path, 2).read().numbers["jobs"] == 1
    assert disk(tmp_path, 2, 6).read().numbers["jobs"] == 1  # although step 3 lies before 6: it never counted
    disk(tmp_path, 2, saved=2).write(job(4), memory(40))
    assert names(tmp_path) == ["step-000001-0-0.npz", "step-000004-0-1.npz"]
    assert disk(tmp_path, 2, 6).read().numbers["jobs"] == 40
    assert disk(tmp_path, 2, 2).read().numbers["jobs"] == 1
    assert disk(tmp_path, 2, 0).read() == Memory()


def test_a_job_of_a_stopped_run_that_ends_late_does_no_harm(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), memory(1))
    disk(tmp_path, 2, saved=2).write(job(2), memory(20))
    disk(tmp_path, saved=2).write(job(3), memory(3))
    assert disk(tmp_path, 2).read().numbers["jobs"] == 20


def test_leftovers_of_a_process_that_died_go(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), memory(1))
    (tmp_path / ID / "client-0007" / ".step-000002-0-0.npz.99").write_bytes(b"half")
    disk(tmp_path).write(job(2), memory(2))
    assert names(tmp_path) == ["step-000001-0-0.npz", "step-000002-0-0.npz"]


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(tmp_path).write(job(1), memory(1))

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"some bytes")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(
        FedsimError, match=r"client 7 cannot keep .*client-0007/step-000002-0-0.npz: No space left"
    ) as told:
        disk(tmp_path).write(job(2), memory(2))
    assert "\n" not in str(told.value)
    assert names(tmp_path) == ["step-000001-0-0.npz"]


def test_a_place_that_is_no_folder_and_a_broken_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedsimError, match=f"{tmp_path}/file/.*Not a directory"):
        disk(tmp_path / "file").write(job(1), memory(1))
    disk(tmp_path).write(job(1), memory(1))
    (tmp_path / ID / "client-0007" / "step-000001-0-0.npz").write_bytes(b"PK not a zip file")
    with pytest.raises(FedsimError, match=r"cannot read .*step-000001-0-0.npz"):
        disk(tmp_path).read()
