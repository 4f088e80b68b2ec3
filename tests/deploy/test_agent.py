"""The agent keeps processes running and stops all of them; with real processes that do little."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedsim.deploy import agent, machine_config
from fedsim.deploy.machine_config import NodeConfig
from fedsim.errors import FedsimError

CONFIG = NodeConfig(
    name="a",
    superlink="127.0.0.1:1",
    ca=Path("ca.crt"),
    key=Path("no.key"),
    port=1,
    config={"partition-id": 0, "state-dir": "state"},
    versions={},
)


def eventually(holds: Callable[[], bool], patience: float = 30) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A node without a key, so that its SuperNode and executor end at once and are restarted."""
    (tmp_path / "node.json").write_text(machine_config.to_json(CONFIG))
    yield tmp_path
    agent.stop(tmp_path)


def test_it_starts_once_and_stops_everything(home: Path) -> None:
    assert agent.start(home) == "started"
    assert agent.start(home) == "already running"
    group = agent.running(home)
    assert group is not None
    eventually(lambda: len(agent._group_members(group)) > 1)
    assert agent.stop(home) == "stopped"
    assert agent._group_members(group) == []
    assert agent.stop(home) == "was not running"


def test_a_home_folder_has_one_agent(home: Path) -> None:
    agent.start(home)
    with pytest.raises(FedsimError, match="an agent is already running in"):
        agent.run(home)


def test_a_process_that_ends_is_restarted_and_logged(home: Path) -> None:
    agent.start(home)
    eventually(lambda: (home / "agent.log").read_text().count("supernode started") >= 2)
    assert "supernode ended with" in (home / "agent.log").read_text()


def test_processes_of_a_killed_agent_are_stopped_too(home: Path) -> None:
    agent.start(home)
    group = agent.running(home)
    assert group is not None
    eventually(lambda: len(agent._group_members(group)) > 1)
    assert agent.state(home) == agent.RUNNING
    os.kill(group, signal.SIGKILL)
    eventually(lambda: agent.running(home) is None)
    if agent._group_members(group):
        assert agent.state(home) == agent.ORPHANED
        assert agent.stop(home) == "stopped what was left"
    assert agent.state(home) == agent.NOT_RUNNING
    assert agent._group_members(group) == []


def test_a_process_group_number_that_was_reused_is_left_alone(home: Path) -> None:
    (home / agent.GROUP).write_text(str(os.getpgrp()))
    assert agent.stop(home) == "was not running"


def test_a_supernode_gets_its_state_folder_and_its_gpus(home: Path) -> None:
    (home / "node.json").write_text(machine_config.to_json(replace(CONFIG, gpu="1,2")))
    words = agent.commands(home)["supernode"]
    pairs = words[words.index("--node-config") + 1]
    assert pairs == f'partition-id=0 state-dir="{home / "state"}"'
    assert agent._environment(home)["CUDA_VISIBLE_DEVICES"] == "1,2"


def test_a_long_log_is_rotated_while_its_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "LOG_BYTES", 1000)
    printer = [sys.executable, "-uc", "import time\nwhile True: print('x' * 99); time.sleep(0.01)"]
    child = agent.ManagedProcess("printer", printer, tmp_path, dict(os.environ))

    def rotated() -> bool:
        child.keep_running()
        return (tmp_path / "printer.log.1").exists() and 0 < child.log.stat().st_size < 1000

    try:
        eventually(rotated)
    finally:
        assert child.process is not None
        agent._terminate([child.process])


def test_an_agent_whose_home_folder_is_gone_ends(home: Path) -> None:
    agent.start(home)
    group = agent.running(home)
    assert group is not None
    home.rename(home.with_name("elsewhere"))
    eventually(lambda: not agent._group_members(group))


def test_an_empty_home_folder_is_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys_argv, sys.argv = sys.argv, ["agent", "start", str(tmp_path)]
    try:
        assert agent.main() == 2
    finally:
        sys.argv = sys_argv
    assert "fedsim deploy up" in capsys.readouterr().err
