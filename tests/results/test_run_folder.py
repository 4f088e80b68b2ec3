"""A run folder belongs to one process at a time, and no two runs share one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fedsim.config import RunConfig
from fedsim.engine.launch import launch
from fedsim.errors import FedsimError
from fedsim.results import checkpoint as checkpoints
from fedsim.results import record
from fedsim.results.record import new_folder, read_events, read_manifest

Small = Callable[..., RunConfig]


def attempt(config: RunConfig) -> str:
    """Starts a run while another one works in this process; returns why it was refused."""
    problems: list[str] = []

    def start() -> None:
        try:
            launch(config, "inline")
        except FedsimError as error:
            problems.append(str(error))

    thread = Thread(target=start)
    thread.start()
    thread.join()
    return "".join(problems)


def test_a_run_that_is_alive_cannot_be_resumed(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, save, refusals = small(f"out={tmp_path / 'run'}", "rounds=3"), checkpoints.save, list[str]()

    def save_and_attempt(folder: Path, point: Any) -> None:
        save(folder, point)
        if not refusals:
            refusals.append(attempt(config.replace(resume=True)))

    monkeypatch.setattr(checkpoints, "save", save_and_attempt)
    launch(config, "inline")
    assert refusals == [f"a live process (pid {os.getpid()}) works on {tmp_path / 'run'}: wait for it, or stop it"]
    assert [e["round"] for e in read_events(tmp_path / "run") if e["kind"] == "step"] == [1, 2, 3]
    assert read_manifest(tmp_path / "run")["resumed"] == []


def test_a_process_that_crashed_holds_its_folder_no_longer(small: Small, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fedsim.results.folder_lock import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        config = small(f"out={tmp_path / 'run'}", "rounds=1")
        with pytest.raises(FedsimError, match=rf"a live process \(pid {holder.pid}\) works on {tmp_path / 'run'}"):
            launch(config, "inline")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    launch(config, "inline")
    assert read_manifest(tmp_path / "run")["status"] == "finished"


def test_runs_of_the_same_second_have_folders_of_their_own(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noon(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Noon":
            return cls(2026, 1, 2, 12, 0, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "datetime", Noon)
    name = "20260102-120000-fedavg-digits-dirichlet-0"
    assert [new_folder(small()).name for _ in range(3)] == [name, f"{name}-2", f"{name}-3"]
    assert all(folder.is_dir() for folder in (tmp_path / "runs").iterdir())
