"""What a node keeps on its disk, and which of it a resumed run may use."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.client.state_store import StateStore
from fedsim.errors import FedsimError
from fedsim.payload import ClientState, Downlink, Job, RunIdentity
from fedsim.weights import Weights

ID = "0123456789abcdef"


def state(value: float) -> ClientState:
    own = Weights(np.full(3, value, np.float32), np.full(2, -value, np.float32))
    return ClientState({"own": own}, {"control": np.array([int(value)])}, {"alpha": value / 3, "jobs": int(value)})


def disk(root: Path, *resumed: int, saved: int = 0) -> StateStore:
    """`saved`: the step of the server's last checkpoint; the one before it was written three steps earlier."""
    return StateStore(root, RunIdentity(ID, resumed, tuple(step for step in (saved - 3, saved) if step > 0)), 7)


def job(step: int, job_index: int = 0) -> Job:
    return Job(7, step, Downlink(), job_index=job_index)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ID / "client-0007").iterdir())


def test_a_state_is_kept(tmp_path: Path) -> None:
    assert disk(tmp_path).read() == ClientState()
    disk(tmp_path).write(job(4), state(2))
    again = disk(tmp_path).read()
    assert again.weights["own"].parameters.tolist() == [2, 2, 2]
    assert again.weights["own"].buffers.tolist() == [-2, -2]
    assert again.arrays["control"].tolist() == [2]
    assert again.numbers == {"alpha": 2 / 3, "jobs": 2}
    assert StateStore(tmp_path, RunIdentity("ff"), 7).read() == ClientState()
    assert StateStore(tmp_path, RunIdentity(ID), 8).read() == ClientState()


def test_four_versions_are_enough(tmp_path: Path) -> None:
    for step in range(9):
        disk(tmp_path, saved=step // 3 * 3).write(job(step), state(step))
    assert names(tmp_path) == [f"step-00000{step}-0-0.npz" for step in (2, 5, 7, 8)]
    assert disk(tmp_path).read().numbers["jobs"] == 8
    assert disk(tmp_path, 6).read().numbers["jobs"] == 5  # the checkpoint was written before step 6 began
    assert disk(tmp_path, 3).read().numbers["jobs"] == 2  # the checkpoint of step 6 was damaged


def test_a_job_starts_from_the_same_state_however_often_it_is_done(tmp_path: Path) -> None:
    disk(tmp_path).write(job(3), state(3))
    for _ in range(3):
        assert disk(tmp_path).read(job(4, job_index=1)).numbers["jobs"] == 3
        disk(tmp_path).write(job(4, job_index=1), state(4))
    assert disk(tmp_path).read(job(4, job_index=2)).numbers["jobs"] == 4
    assert disk(tmp_path).read(job(3)) == ClientState()
    assert disk(tmp_path).read().numbers["jobs"] == 4


def test_what_a_stopped_run_did_after_its_checkpoint_is_forgotten(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), state(1))
    disk(tmp_path, saved=2).write(job(3), state(3))
    assert disk(tmp_path, 2).read().numbers["jobs"] == 1
    assert disk(tmp_path, 2, 6).read().numbers["jobs"] == 1  # although step 3 lies before 6: it never counted
    disk(tmp_path, 2, saved=2).write(job(4), state(40))
    assert names(tmp_path) == ["step-000001-0-0.npz", "step-000004-0-1.npz"]
    assert disk(tmp_path, 2, 6).read().numbers["jobs"] == 40
    assert disk(tmp_path, 2, 2).read().numbers["jobs"] == 1
    assert disk(tmp_path, 2, 0).read() == ClientState()


def test_a_job_of_a_stopped_run_that_ends_late_does_no_harm(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), state(1))
    disk(tmp_path, 2, saved=2).write(job(2), state(20))
    disk(tmp_path, saved=2).write(job(3), state(3))
    assert disk(tmp_path, 2).read().numbers["jobs"] == 20


def test_leftovers_of_a_process_that_died_go(tmp_path: Path) -> None:
    disk(tmp_path).write(job(1), state(1))
    (tmp_path / ID / "client-0007" / ".step-000002-0-0.npz.99.unfinished").write_bytes(b"half")
    disk(tmp_path).write(job(2), state(2))
    assert names(tmp_path) == ["step-000001-0-0.npz", "step-000002-0-0.npz"]


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(tmp_path).write(job(1), state(1))

    def full(file: Any, *arguments: Any, **options: Any) -> None:
        file.write(b"some bytes")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(
        FedsimError, match=r"client 7 cannot keep .*client-0007/step-000002-0-0.npz: No space left"
    ) as told:
        disk(tmp_path).write(job(2), state(2))
    assert "\n" not in str(told.value)
    assert names(tmp_path) == ["step-000001-0-0.npz"]


def test_a_place_that_is_no_folder_and_a_broken_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedsimError, match=f"{tmp_path}/file/.*Not a directory"):
        disk(tmp_path / "file").write(job(1), state(1))
    disk(tmp_path).write(job(1), state(1))
    path = tmp_path / ID / "client-0007" / "step-000001-0-0.npz"
    content = path.read_bytes()
    changed = content.replace(np.float32(1).tobytes(), np.float32(2).tobytes(), 1)
    for damaged in (b"", b"PK not a zip file", content[:-1], changed):
        path.write_bytes(damaged)
        with pytest.raises(FedsimError, match=r"cannot read .*step-000001-0-0.npz is damaged"):
            disk(tmp_path).read()
