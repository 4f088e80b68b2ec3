from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import checkpoint as checkpoints
from fedsim.checkpoint import Checkpoint
from fedsim.clock import Flight, unloaded
from fedsim.errors import FedsimError
from fedsim.payload import Answer, Downlink, Job, Memory, Report, Uplink


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
    memories = {0: Memory({"model": np.ones(2, np.float32)}, {"alpha": 0.25})}
    job = Job(3, 2, Downlink({"model": np.ones(2, np.float32)}))
    flight = Flight(
        4.5, True, 3, 1.0, job, Answer(job, Uplink({"delta": np.ones(2, np.float32)}, 8), Report(None, 0.5))
    )
    return Checkpoint(step, 1.5, 10, 20, state, memories, {5: inf}, [unloaded(flight)])


def test_a_nested_state_comes_back(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(3))
    got = checkpoints.newest(tmp_path, State)
    assert got is not None
    assert (got.step, got.now, got.bytes_up, got.bytes_down) == (3, 1.5, 10, 20)
    assert got.state.theta.tolist() == [0, 1, 2]
    assert got.state.parts[4].matrix.tolist() == [[1, 0], [0, 1]]
    assert got.state.parts[4].note is None
    assert (got.state.history, got.state.step) == ([(1, 0.5)], 7)
    assert got.memories[0].vectors["model"].tolist() == [1, 1]
    assert got.memories[0].numbers == {"alpha": 0.25}
    assert got.away == {5: inf}


def test_jobs_in_flight_come_back_with_their_results(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, point(3))
    got = checkpoints.newest(tmp_path, State)
    assert got is not None
    (flight,) = got.flights
    assert (flight.finish, flight.client, flight.sent, flight.job.step) == (4.5, 3, 1.0, 2)
    assert isinstance(flight.result, Answer)
    assert flight.result.uplink is not None
    assert flight.result.uplink.vectors["delta"].tolist() == [1, 1]
    assert flight.result.report == Report(None, 0.5)
    assert flight.job.down == Downlink()


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
    with pytest.raises(FedsimError, match=r"step-000001\.npz cannot be read"):
        checkpoints.newest(tmp_path, State)
