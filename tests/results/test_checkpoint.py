from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.client_table import ClientTable
from fedsim.errors import FedsimError, StorageError
from fedsim.files import write_npz
from fedsim.payload import Answer, ClientState, Downlink, Job, Report, Uplink
from fedsim.results import checkpoint as checkpoints
from fedsim.results.checkpoint import Checkpoint
from fedsim.server.clock import PendingJob
from fedsim.weights import Weights


@dataclass
class Inner:
    matrix: Any
    note: str | None


@dataclass
class State:
    theta: Any
    parts: dict[int, Inner]
    history: list[tuple[int, float]]
    step: int


def point(step: int) -> Checkpoint:
    state = State(np.arange(3, dtype=np.float32), {4: Inner(np.eye(2), None)}, [(1, 0.5)], np.int64(7))
    client_states = {0: ClientState({"model": Weights(np.ones(2, np.float32))}, numbers={"alpha": 0.25})}
    job = Job(3, 2, Downlink({"model": Weights(np.ones(2, np.float32))}))
    uplink = Uplink(8, {"delta": Weights(np.ones(2, np.float32))})
    pending = PendingJob(4.5, True, 3, 1.0, job, Answer(job, uplink, Report(None, {"accuracy": 0.5})))
    return Checkpoint(step, 1.5, 10, 20, state, client_states, {5: inf}, [pending.without_model()])


def test_a_nested_state_comes_back(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(3))
    got = checkpoints.newest(tmp_path, State)
    assert got is not None
    assert (got.step, got.now, got.bytes_up, got.bytes_down) == (3, 1.5, 10, 20)
    assert got.state.theta.tolist() == [0, 1, 2]
    assert got.state.parts[4].matrix.tolist() == [[1, 0], [0, 1]]
    assert got.state.parts[4].note is None
    assert (got.state.history, got.state.step) == ([(1, 0.5)], 7)
    assert got.client_states[0].weights["model"].parameters.tolist() == [1, 1]
    assert got.client_states[0].numbers == {"alpha": 0.25}
    assert got.absent_until == {5: inf}


def test_jobs_in_flight_come_back_with_their_results(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(3))
    got = checkpoints.newest(tmp_path, State)
    assert got is not None
    (pending,) = got.pending
    assert (pending.finish, pending.client, pending.sent, pending.job.step) == (4.5, 3, 1.0, 2)
    assert isinstance(pending.result, Answer)
    assert pending.result.uplink is not None
    assert pending.result.uplink.weights["delta"].parameters.tolist() == [1, 1]
    assert pending.result.report == Report(None, {"accuracy": 0.5})
    assert pending.job.down == Downlink()


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        checkpoints.save(tmp_path, point(step))
    assert checkpoints.saved_steps(tmp_path) == [2, 10]
    checkpoints.save(tmp_path, point(4))  # the run was resumed from step 2
    assert checkpoints.saved_steps(tmp_path) == [2, 4]


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(tmp_path, point(1))

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(StorageError, match=r"cannot write .*checkpoint/step-000002.npz: No space left"):
        checkpoints.save(tmp_path, point(2))
    kept = checkpoints.newest(tmp_path, State)
    assert kept is not None
    assert kept.step == 1


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a set cannot be checkpointed"):
        checkpoints.dump({"who": {1, 2}})


def test_a_folder_without_a_checkpoint_has_none(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path, State) is None


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(1))
    path = tmp_path / "checkpoint" / "step-000001.npz"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    headers = [
        *range(100),
        *range(len(content) - 800, len(content)),
    ]  # of the first entry; of the archive, the checksum
    for place in [*headers, *rng.integers(len(content), size=200).tolist()]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(FedsimError, match=r"step-000001\.npz is damaged"):
            checkpoints.newest(tmp_path, State)


@pytest.mark.parametrize("kept", [0, 1, 50, 70, 200, 5000])
def test_a_cut_off_checkpoint_is_found(kept: int, tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(1))
    path = tmp_path / "checkpoint" / "step-000001.npz"
    path.write_bytes(path.read_bytes()[:-kept] if kept > 1000 else path.read_bytes()[:kept])
    with pytest.raises(FedsimError, match=r"step-000001\.npz is damaged.*begin the run again in another folder"):
        checkpoints.newest(tmp_path, State)


def test_the_one_before_takes_the_place_of_a_damaged_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2):
        checkpoints.save(tmp_path, point(step))
    one, two = (tmp_path / "checkpoint" / f"step-00000{step}.npz" for step in (1, 2))
    two.write_bytes(b"")
    found = checkpoints.newest(tmp_path, State)
    assert found is not None
    assert found.step == 1
    assert (
        f"{two} is damaged: it has no checksum at its end. The run goes on from the checkpoint of round 1"
        in caplog.text
    )
    one.write_bytes(one.read_bytes()[:-1])
    with pytest.raises(FedsimError, match=f"{two} is damaged.*{one} is damaged"):
        checkpoints.newest(tmp_path, State)


def test_the_newest_that_is_accepted_or_else_the_newest(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoints.save(tmp_path, point(step))
    for accepted, chosen in (({1, 2}, 2), ({1}, 1), (set[int](), 2)):
        found = checkpoints.newest(tmp_path, State, accepts=lambda it, those=accepted: it.step in those)
        assert found is not None
        assert found.step == chosen


def test_a_checkpoint_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    old = {name: value for name, value in checkpoints.dump(point(1)).items() if name != "format"}
    write_npz(tmp_path / "checkpoint" / "step-000001.npz", old)
    told = r"step-000001\.npz cannot be read.*it has format 1, and this version of fedsim reads format 3"
    with pytest.raises(FedsimError, match=told):
        checkpoints.newest(tmp_path, State)


def test_what_no_version_wrote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint" / "step-000001.npz"
    for tree in (
        b"7",
        b"{}",
        b"[" * 100_000,
        b'{"dataclass": "State", "fields": {}}',
        b'{"array": "nothing"}',
        b"\xff",
    ):
        write_npz(path, {"tree": np.frombuffer(tree, np.uint8), "format": np.array(checkpoints.VERSION)})
        with pytest.raises(FedsimError, match=r"step-000001\.npz cannot be read by this version"):
            checkpoints.newest(tmp_path, State)


@pytest.mark.parametrize("step", [None, "1", 2])
def test_a_checkpoint_must_be_of_the_step_in_its_name(step: Any, tmp_path: Path) -> None:
    arrays = checkpoints.dump(replace(point(1), step=step))
    write_npz(tmp_path / "checkpoint" / "step-000001.npz", arrays)
    with pytest.raises(FedsimError, match=r"step-000001\.npz cannot be read by this version: it holds step"):
        checkpoints.newest(tmp_path, State)


@dataclass
class TableState:
    models: ClientTable
    history: dict[int, Any]


def with_table(models: Any) -> Checkpoint:
    state = TableState(np.asarray(models, np.float32), {0: np.eye(2)})
    return Checkpoint(1, 0.0, 0, 0, state, {}, {}, [])


def test_a_table_is_read_into_that_of_a_fresh_state(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, with_table([[1, 2], [3, 4], [5, 6]]))
    fresh = TableState(np.zeros((3, 2), np.float32), {})
    got = checkpoints.newest(tmp_path, TableState, fresh)
    assert got is not None
    assert got.state.models is fresh.models
    assert fresh.models.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert got.state.history[0].tolist() == [[1, 0], [0, 1]]


def test_a_table_of_another_shape_is_refused(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, with_table([[1, 2], [3, 4]]))
    with pytest.raises(FedsimError, match=r"a table of \(2, 2\) float32 instead of \(3, 2\)"):
        checkpoints.newest(tmp_path, TableState, TableState(np.zeros((3, 2), np.float32), {}))


def test_damage_in_a_table_is_found(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, with_table(np.full((2, 1000), 7)))
    path = tmp_path / "checkpoint" / "step-000001.npz"
    content = path.read_bytes()
    path.write_bytes(content.replace(np.float32(7).tobytes(), np.float32(8).tobytes(), 1))
    with pytest.raises(FedsimError, match="is damaged: its checksum is another one"):
        checkpoints.newest(tmp_path, TableState, TableState(np.zeros((2, 1000), np.float32), {}))
