"""Messages that are lost on the way, with real clients on a grid that a test commands."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from fedsim.config import RunConfig
from fedsim.flower.grid import ObjectPushError
from fedsim.payload import Downlink, Failure, Job, RunIdentity
from fedsim.results.record import Record, read_summary
from fedsim.server.app import build
from fedsim.transport import grid as transport_grid
from fedsim.transport import liveness, wire
from fedsim.transport.messenger import Messenger, SentJob
from tests.nodes import Nodes

Small = Callable[..., RunConfig]
LOST = "client 1: its job or its answer was lost on the way, sending it again"


@pytest.fixture(autouse=True)
def _always_checking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedsim")
    for name in ("CHECK_SECONDS", "IDLE_CHECK_SECONDS", "PATIENCE"):
        monkeypatch.setattr(liveness, name, 0.0)


def run(grid: Nodes, folder: Path) -> Path:
    build(grid.config).start(grid, record=Record(folder, grid.config, "test"))
    return folder


def times(wanted: int, kind: str, node: int = 101) -> Callable[[Message], bool]:
    """True for the first messages of this kind to a node, or replies from it, after the first one."""
    seen = 0

    def matches(message: Message) -> bool:
        nonlocal seen
        about = message.metadata
        if about.message_type != kind or node not in (about.src_node_id, about.dst_node_id):
            return False
        seen += 1
        return 1 < seen <= 1 + wanted

    return matches


def assert_as_if_nothing_had_been_lost(folder: Path, config: RunConfig, tmp_path: Path) -> None:
    quiet = run(Nodes(config, tmp_path / "other disks"), tmp_path / "quiet")
    found, expected = read_summary(folder), read_summary(quiet)
    assert found["failures"] == []
    assert found["accuracy"] == expected["accuracy"]
    with np.load(folder / "model.npz") as one, np.load(quiet / "model.npz") as two:
        assert all(np.array_equal(one[name], two[name]) for name in two.files)


@pytest.mark.parametrize("kind", [wire.TRAIN, wire.EVALUATE])
@pytest.mark.parametrize("pace", ["synchronous", "buffered"])
@pytest.mark.parametrize("losses", [1, 2])
def test_a_job_that_got_lost_is_sent_again(
    losses: int, pace: str, kind: str, small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SCAFFOLD's clients remember a control variate: a job that is done on top of itself would show."""
    participation = "participation=0.7" if kind == wire.EVALUATE else "participation=1.0"  # who rests is only tested
    grid = Nodes(
        small("clients=3", "algorithm=scaffold", "rounds=4", f"pace={pace}", participation), tmp_path / "disks"
    )
    lost = times(losses, kind)
    grid.happens = lambda message: grid.drop(message) if lost(message) else None
    folder = run(grid, tmp_path / "run")
    assert caplog.text.count(LOST) == losses
    assert_as_if_nothing_had_been_lost(folder, grid.config, tmp_path)


@pytest.mark.parametrize(
    "what", ["loses", "truncates"]
)  # a node that is cut off while it sends leaves a part of an answer
@pytest.mark.parametrize("pace", ["synchronous", "buffered"])
def test_a_job_whose_answer_got_lost_is_done_again_from_where_it_started(
    pace: str, what: str, small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = Nodes(small("clients=3", "algorithm=scaffold", "rounds=4", f"pace={pace}"), tmp_path / "disks")
    setattr(grid, what, times(2, wire.TRAIN))
    folder = run(grid, tmp_path / "run")
    assert caplog.text.count(LOST) == 2
    assert_as_if_nothing_had_been_lost(folder, grid.config, tmp_path)


def test_a_node_that_takes_long_is_left_alone(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = Nodes(small("clients=3", "algorithm=scaffold", "rounds=3"), tmp_path / "disks")
    slow, stalls, asked = times(1, wire.TRAIN), list[Message](), list[Message]()

    def happens(message: Message) -> None:
        if slow(message):
            stalls.append(message)
        if message.metadata.message_type == wire.ALIVE:
            asked.append(message)

    grid.happens = happens
    grid.works = lambda node: node != 101 or not stalls or bool(asked)  # until the server asks whether it is alive
    folder = run(grid, tmp_path / "run")
    assert 101 in {message.metadata.dst_node_id for message in asked}
    assert "lost" not in caplog.text
    assert_as_if_nothing_had_been_lost(folder, grid.config, tmp_path)


def test_a_client_without_a_disk_cannot_go_back_and_is_waited_for(small: Small, tmp_path: Path) -> None:
    grid = Nodes(small("clients=3", "rounds=2", "timeout=0.5"))
    lost = times(1, wire.TRAIN)
    grid.happens = lambda message: grid.drop(message) if lost(message) else None
    (failure,) = read_summary(run(grid, tmp_path / "run"))["failures"]
    assert (failure["client"], failure["reason"]) == (1, "no answer within 0 s of sending")


def test_a_superlink_that_forgot_half_a_message_is_given_it_again(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_grid, "LAST_POLL", 0.01)
    refusals = iter(range(3))

    class Restarted(Nodes):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            whole = list(messages)
            if whole[0].metadata.message_type == wire.TRAIN and next(refusals, None) is not None:
                raise ObjectPushError("0" * 64, 1, "a session that is gone")
            return super().push_messages(whole)

    grid = Restarted(small("clients=3", "algorithm=scaffold", "rounds=3"), tmp_path / "disks")
    folder = run(grid, tmp_path / "run")
    assert next(refusals, None) is None
    assert_as_if_nothing_had_been_lost(folder, grid.config, tmp_path)


def test_a_job_past_its_deadline_is_not_sent_again(small: Small) -> None:
    """A node that was busy with it until its time was over answers a question afterwards: the job is late, not lost."""
    grid = Nodes(small("clients=3"))
    messenger = Messenger(grid, lambda client: 100 + client, RunIdentity("ab"), 10, timeout=30.0)
    messenger.in_flight["message-0"] = SentJob(Job(1, 0, Downlink()), 101, sent=0.0, created=0.0, deadline=0.0)
    assert not messenger.resend(["message-0"])
    (failure,) = messenger.receive(0.0)
    assert isinstance(failure, Failure)
    assert (failure.job.client, failure.reason, failure.offline) == (1, "no answer within 30 s of sending", True)
