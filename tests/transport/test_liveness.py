"""Nodes that leave and come back during a run, with real clients on a grid that a test commands."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from safetensors.numpy import load_file

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import FedsimError
from fedsim.results.record import Record, read_events, read_summary
from fedsim.server.app import build
from fedsim.transport import liveness, wire
from tests.nodes import Nodes
from tests.replay import own_model

Small = Callable[..., RunConfig]


@pytest.fixture(autouse=True)
def _always_checking(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedsim")
    monkeypatch.setattr(liveness, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(liveness, "IDLE_CHECK_SECONDS", 0.0)


@pytest.fixture
def federation(small: Small, tmp_path: Path) -> Callable[..., Nodes]:
    def make(*keys: str) -> Nodes:
        return Nodes(small("clients=3", *keys), tmp_path / "disks")

    return make


def at(step: int, client: int, does: Callable[[], Any]) -> Callable[[Message], None]:
    """Something happens, once, when this client is sent its training job of this step."""
    done = False

    def happens(message: Message) -> None:
        nonlocal done
        if not done and message.metadata.message_type == wire.TRAIN:
            job = wire.unpack_job(message)
            if (job.step, job.client) == (step, client):
                done = True
                does()

    return happens


def together(*scripts: Callable[[Message], None]) -> Callable[[Message], None]:
    def happens(message: Message) -> None:
        for script in scripts:
            script(message)

    return happens


def run(grid: Nodes, folder: Path) -> list[list[int]]:
    """Who took part in each step."""
    build(grid.config).start(grid, record=Record(folder, grid.config, "test"))
    return [[row["id"] for row in e["clients"]] for e in read_events(folder) if e["kind"] == "step"]


def reasons(folder: Path) -> list[tuple[int, str]]:
    return [(failure["client"], failure["reason"]) for failure in read_summary(folder)["failures"]]


@pytest.mark.parametrize("node", [101, 500])
def test_a_lost_client_comes_back_with_its_memory(
    node: int, federation: Callable[..., Nodes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a key it is the same node again, without one a new one."""
    grid = federation("algorithm=local", "rounds=6")
    leaves = at(2, 1, lambda: grid.leave(101))
    returns = at(3, 0, lambda: grid.online.update({node: 1}))
    grid.happens = together(leaves, returns)
    took_part = run(grid, tmp_path / "run")
    assert took_part[:3] == [[0, 1, 2], [0, 1, 2], [0, 2]]
    assert took_part[-1] == [0, 1, 2]
    assert reasons(tmp_path / "run") == [(1, "Node is offline (Flower error 5)")]
    told = caplog.text
    assert "client 1 is lost: Node is offline (Flower error 5)" in told
    assert "client 1 is back" in told
    (kept,) = (tmp_path / "disks" / "1").glob("*/client-0001.safetensors")
    expected = own_model(grid.config, 1, [step for step, who in enumerate(took_part) if 1 in who])
    assert all(np.array_equal(load_file(kept)[name], values) for name, values in expected.items())


def test_only_its_own_node_takes_the_place_of_a_lost_client(
    federation: Callable[..., Nodes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign node has the same data, and even a key; a second one has none. Both only get in if nobody is bound."""
    grid = federation("rounds=7")
    grid.names = {100: "a", 101: "b", 102: "c", 500: "d", 101500: "b"}
    leaves = at(1, 1, lambda: grid.leave(101))
    intrude = at(2, 0, lambda: grid.online.update({500: 1, 501: 1}))
    returns = at(4, 0, lambda: grid.online.update({101500: 1}))  # with a new key, under its name
    grid.happens = together(leaves, intrude, returns)
    took_part = run(grid, tmp_path / "run")
    assert took_part[:5] == [[0, 1, 2], [0, 2], [0, 2], [0, 2], [0, 2]]
    assert took_part[-1] == [0, 1, 2]
    assert "node 500 (d) says it is client 1, which is node 101 (b)" in caplog.text
    assert "node 501 (without a registered key) says it is client 1, which is node 101 (b)" in caplog.text
    assert reasons(tmp_path / "run") == [(1, "Node is offline (Flower error 5)")]


def test_uninvited_nodes_and_a_lying_client_do_not_stop_a_run(
    federation: Callable[..., Nodes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the beginning there is a node that talks nonsense, a second client 1, and a node that never answers."""
    grid = federation("rounds=4", "refusals=2")
    grid.online |= {50: 2, 900: 0, 901: 1}
    grid.works = lambda node: node != 50
    grid.forges = forged
    took_part = run(grid, tmp_path / "run")
    assert took_part == [[0, 1]] * 4
    told = caplog.text
    assert "the answer of node 900 to the roll call was refused: 'client' is missing. It is left out" in told
    assert "client id 1 is claimed by two nodes (901 and 101)" in told
    assert "client 2 gets no more jobs: 2 of its answers in a row were refused" in told
    assert read_summary(tmp_path / "run")["refusals"] == {"count": 2, "per_client": {"2": 2}, "benched": [2]}


def forged(order: Message, reply: Message) -> Message:
    """Node 900 talks nonsense, node 102 has a trillion samples."""
    if order.metadata.dst_node_id == 900:
        return Message(RecordDict({wire.NUMBERS: ConfigRecord({"clients": 1})}), reply_to=order)
    if order.metadata.dst_node_id == 102 and wire.NUMBERS in reply.content and wire.METRICS in reply.content:
        reply.content[wire.NUMBERS] = ConfigRecord({"examples": 10**12})
    return reply


def test_a_client_with_other_data_stays_out(
    federation: Callable[..., Nodes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = federation("rounds=7")
    grid.configs[500] = grid.config.replace(seed=99)
    grid.happens = together(at(1, 1, lambda: grid.leave(101)), at(2, 0, lambda: grid.online.update({500: 1, 501: 7})))
    assert run(grid, tmp_path / "run")[-1] == [0, 2]
    (_, gone), (client, refused) = reasons(tmp_path / "run")
    assert "Flower error 5" in gone
    assert client == 1
    assert refused.startswith("client 1 came back with other data and stays out: ")
    told = caplog.text
    assert told.count("stays out") == 1
    assert "node 501 cannot take part: ConfigError: client 7: client 7 does not exist" in told


def test_a_node_that_was_restarted_lost_its_job(federation: Callable[..., Nodes], tmp_path: Path) -> None:
    """It was offline so briefly that nobody saw it; its message is delivered to nobody else."""
    grid = federation("rounds=4")

    def restart() -> None:
        grid._waiting = {k: m for k, m in grid._waiting.items() if m.metadata.dst_node_id != 101}
        grid.started[101] = datetime.fromtimestamp(4e9, UTC).isoformat()

    def settle() -> None:
        grid.started[101] = ""

    grid.happens = together(at(1, 1, restart), at(2, 0, settle))
    took_part = run(grid, tmp_path / "run")
    assert took_part[1] == [0, 2]
    assert took_part[-1] == [0, 1, 2]
    assert reasons(tmp_path / "run") == [(1, "its node was restarted")]


def test_when_nobody_is_left_it_waits(
    federation: Callable[..., Nodes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = federation("rounds=3")

    def everybody_leaves() -> None:
        for node in list(grid.online):
            grid.leave(node)

    def sleep(seconds: float) -> None:
        if not grid.online:
            grid.online |= {502: 2}

    monkeypatch.setattr(liveness.time, "sleep", sleep)
    grid.happens = at(1, 2, everybody_leaves)
    assert run(grid, tmp_path / "run") == [[0, 1, 2], [2], [2]]
    assert "no client is left: waiting up to 3600 s for one to return" in caplog.text
    assert sorted(client for client, _ in reasons(tmp_path / "run")) == [0, 1, 2]


def test_a_node_that_died_before_the_roll_call_is_replaced(federation: Callable[..., Nodes], tmp_path: Path) -> None:
    """Flower needs a minute to see that a node is gone; the one that took its place is asked then."""
    grid = federation("rounds=1")

    def die(message: Message) -> None:
        if message.metadata.dst_node_id == 101:
            grid.leave(101)
            grid.online[500] = 1

    grid.happens = die
    assert run(grid, tmp_path / "run") == [[0, 1, 2]]
    assert reasons(tmp_path / "run") == []


def test_it_does_not_wait_for_ever(federation: Callable[..., Nodes], tmp_path: Path) -> None:
    grid = federation("rounds=3", "timeout=0.3")
    grid.happens = at(1, 2, grid.online.clear)
    with pytest.raises(FedsimError, match="round 2 got no result from any client"):
        run(grid, tmp_path / "run")


def test_everybody_has_a_personal_model_in_the_end(federation: Callable[..., Nodes], tmp_path: Path) -> None:
    """Without rounds somebody is still training when the run ends: it finishes first, and its result is wasted."""
    grid = federation("algorithm=fedasync", "rounds=4")
    run(grid, tmp_path / "run")
    (end,) = [e for e in read_events(tmp_path / "run") if e["kind"] == "end"]
    assert end["in_flight"] == []
    assert {row["reason"] for row in end["wasted"]} == {"the run ended"}
    with np.load(tmp_path / "run" / "model.npz") as model:
        for client in range(3):
            (kept,) = (tmp_path / "disks" / str(client)).glob(f"*/client-000{client}.safetensors")
            assert all(np.array_equal(load_file(kept)[name], model[name]) for name in model.files)


def test_disks_and_flowers_state_give_the_same_run(small: Small, tmp_path: Path) -> None:
    config = small("clients=3", "algorithm=scaffold", "rounds=4")
    run(Nodes(config), tmp_path / "state")
    run(Nodes(config, tmp_path / "disks"), tmp_path / "disk")
    launch(config.replace(out=str(tmp_path / "inline")), "inline")
    one, two, three = (np.load(tmp_path / name / "model.npz") for name in ("state", "disk", "inline"))
    for name in one.files:
        assert np.array_equal(one[name], two[name])
        assert np.array_equal(one[name], three[name])


def test_a_failing_disk_is_the_failure_of_its_client(federation: Callable[..., Nodes], tmp_path: Path) -> None:
    grid = federation("rounds=2")
    (tmp_path / "disks").mkdir()
    (tmp_path / "disks" / "1").write_text("a file where a folder should be")
    assert run(grid, tmp_path / "run") == [[0, 2], [0, 2]]
    for client, reason in reasons(tmp_path / "run"):
        assert client == 1
        assert str(tmp_path / "disks" / "1") in reason
