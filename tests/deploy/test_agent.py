"""The agent keeps processes running and stops all of them. Real processes; only what they do is simple."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import agent


def eventually(holds: Callable[[], bool], patience: float = 30) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A node whose SuperNode and executor cannot start: there is no key. Their restarts are what is seen."""
    about = {"role": "node", "name": "a", "superlink": "127.0.0.1:1", "ca": "ca.crt", "key": "no.key", "port": 1}
    (tmp_path / "node.json").write_text(json.dumps({**about, "config": {"partition-id": 0, "state-dir": "state"}}))
    yield tmp_path
    agent.stop(tmp_path)


def test_it_starts_once_and_stops_everything(home: Path) -> None:
    assert agent.start(home) == "started"
    assert agent.start(home) == "already running"
    group = agent.running(home)
    assert group is not None
    eventually(lambda: len(agent._members(group)) > 1)
    assert agent.stop(home) == "stopped"
    assert agent._members(group) == []
    assert agent.stop(home) == "was not running"


def test_what_ends_is_started_again_and_told(home: Path) -> None:
    agent.start(home)
    eventually(lambda: (home / "agent.log").read_text().count("supernode started") >= 2)
    assert "supernode ended with" in (home / "agent.log").read_text()


def test_what_a_killed_agent_left_behind_is_stopped_too(home: Path) -> None:
    agent.start(home)
    group = agent.running(home)
    assert group is not None
    eventually(lambda: len(agent._members(group)) > 1)
    os.kill(group, signal.SIGKILL)
    eventually(lambda: agent.running(home) is None)
    if agent._members(group):
        assert agent.stop(home) == "stopped what was left"
    assert agent._members(group) == []


def test_a_number_used_again_is_not_ours(home: Path) -> None:
    (home / agent.LOCK).write_text(str(os.getpgrp()))
    assert agent.stop(home) == "was not running"


def test_a_node_is_told_its_state_folder_and_its_gpu(home: Path) -> None:
    about = json.loads((home / "node.json").read_text())
    (home / "node.json").write_text(json.dumps({**about, "gpu": "1,2"}))
    words = agent.commands(home)["supernode"]
    pairs = words[words.index("--node-config") + 1]
    assert pairs == f'partition-id=0 state-dir="{home / "state"}"'
    assert agent._environment(home)["CUDA_VISIBLE_DEVICES"] == "1,2"


def test_a_long_log_is_put_aside_while_its_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LOG_BYTES", 1000)
    chatter = [sys.executable, "-uc", "import time\nwhile True: print('x' * 99); time.sleep(0.01)"]
    child = agent.Child("chatter", chatter, tmp_path, dict(os.environ))

    def tended() -> bool:
        child.tend()
        return (tmp_path / "chatter.log.1").exists() and 0 < child.log.stat().st_size < 1000

    try:
        eventually(tended)
    finally:
        assert child.process is not None
        agent._end([child.process])


def test_an_agent_without_a_home_ends(home: Path) -> None:
    agent.start(home)
    group = agent.running(home)
    assert group is not None
    home.rename(home.with_name("elsewhere"))
    eventually(lambda: not agent._members(group))


def test_an_empty_home_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys_argv, sys.argv = sys.argv, ["agent", "start", str(tmp_path)]
    try:
        assert agent.main() == 2
    finally:
        sys.argv = sys_argv
    assert "fedsim deploy up" in capsys.readouterr().err
