from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.client_table import ClientTable
from fedsim.errors import FedsimError
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


def test_only_the_newest_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        checkpoints.save(tmp_path, point(step))
    assert [p.name for p in (tmp_path / "checkpoint").iterdir()] == ["step-000010.npz"]


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(tmp_path, point(1))

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(tmp_path, point(2))
    kept = checkpoints.newest(tmp_path, State)
    assert kept is not None
    assert kept.step == 1


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a set cannot be checkpointed"):
        checkpoints.dump({"who": {1, 2}})


def test_missing_and_broken_checkpoints_are_named(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path, State) is None
    checkpoints.save(tmp_path, point(1))
    path = tmp_path / "checkpoint" / "step-000001.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FedsimError, match=r"step-000001\.npz cannot be read, it is damaged or of another version"):
        checkpoints.newest(tmp_path, State)


def test_a_checkpoint_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    old = {name: value for name, value in checkpoints.dump(point(1)).items() if name != "format"}
    write_npz(tmp_path / "checkpoint" / "step-000001.npz", old)
    told = r"step-000001\.npz cannot be read.*it has format 1, and this version of fedsim reads format 2"
    with pytest.raises(FedsimError, match=told):
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
    with pytest.raises(FedsimError, match="cannot be read, it is damaged"):
        checkpoints.newest(tmp_path, TableState, TableState(np.zeros((2, 1000), np.float32), {}))
