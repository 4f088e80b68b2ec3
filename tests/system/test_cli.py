"""The command line: refusals, listings, summaries, progress output and interrupts."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedsim.cli import main
from fedsim.results.record import read_events, read_manifest, read_summary

FEDSIM = str(Path(sys.executable).parent / "fedsim")
QUICK = ["--set", "model=mlr", "--set", "clients=3"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must exit with 2 and one line; returns the line."""
    assert main(arguments) == 2
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert line.startswith("fedsim: ")
    return line


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["rouns=3"], ["rouns", "rounds"]),
        (["algorithm=fedsgd"], ["fedsgd", "fedavg", "local"]),
        (["partition=classes", "partition.classes=11"], ["11", "10"]),
        (["clients=0"], ["clients", "at least 1"]),
        (["dataset=imagenet"], ["imagenet"]),
        (["dataset=mnist"], ["mnist", "npz"]),
    ],
)
def test_bad_requests_are_one_line(
    pairs: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path / "data"))
    settings = [part for pair in pairs for part in ("--set", pair)]
    line = refused(capsys, "run", "--engine", "inline", *settings)
    for word in words:
        assert word in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("harm", ["truncated", "missing array", "not an npz"])
def test_a_broken_npz_is_named(harm: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    arrays = {"x_train": np.zeros((20, 8, 8), np.uint8), "y_train": np.arange(20) % 10}
    whole = {**arrays, "x_test": arrays["x_train"], "y_test": arrays["y_train"]}
    np.savez(path, **(arrays if harm == "missing array" else whole))
    if harm == "truncated":
        path.write_bytes(path.read_bytes()[:-300])
    if harm == "not an npz":
        path.write_text("hello")
    settings = ["--set", "dataset=mnist", "--set", f"data-root={tmp_path}", "--set", "clients=2"]
    assert "mnist.npz" in refused(capsys, "run", "--engine", "inline", "--out", str(tmp_path / "run"), *settings)


def test_a_folder_with_a_run_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["run", "--engine", "inline", "--out", str(tmp_path / "run"), "--set", "rounds=1", *QUICK]
    assert main(arguments) == 0
    capsys.readouterr()
    before = read_events(tmp_path / "run")
    assert "already holds a run" in refused(capsys, *arguments)
    assert read_events(tmp_path / "run") == before
    assert "finished" in refused(capsys, "resume", str(tmp_path / "run"))
    assert "manifest.json" in refused(capsys, "resume", str(tmp_path))


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in ("fedavg", "fedavg-ft", "local", "digits", "iid", "cnn", "synchronous", "none"):
        assert name in text
    assert main(["list", "models", "--json"]) == 0
    assert {m["name"] for m in json.loads(capsys.readouterr().out)["models"]} >= {"mlr", "mlp", "cnn"}


def test_the_summary_has_its_fixed_keys(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    assert main(["run", "--engine", "inline", "--out", out, "--set", "rounds=2", *QUICK]) == 0
    summary = read_summary(tmp_path / "run")
    assert set(summary) == {
        *("algorithm", "dataset", "partition", "model", "clients", "rounds", "seed", "engine", "accuracy"),
        *("seconds", "virtual_seconds", "bytes_up", "bytes_down", "weights_sha256", "failures", "metrics"),
    }
    for kind in ("personal", "local", "global"):
        assert set(summary["accuracy"][kind]) == {"best", "best_round", "final", "per_client", "last_tested"}
        assert len(summary["accuracy"][kind]["per_client"]) == 3
    assert summary["virtual_seconds"] == 2.0


@pytest.mark.system
@pytest.mark.parametrize("engine", ["inline", "ray"])
def test_ctrl_c_leaves_a_readable_folder_that_can_be_resumed(engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = [*QUICK, "--set", "rounds=400", "--set", "checkpoint-every=5"]
    command = [FEDSIM, "run", "--engine", engine, "--out", str(folder), *settings]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob("checkpoint/step-*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "fedsim: interrupted"
    assert "Traceback" not in errors
    assert read_manifest(folder)["status"] == "interrupted"
    steps = [event["round"] for event in read_events(folder) if event["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert 5 <= len(steps) < 400

    done = subprocess.run(
        [FEDSIM, "resume", "--engine", "inline", str(folder)], capture_output=True, text=True, check=True
    )
    assert "already done" in done.stdout
    assert read_manifest(folder)["status"] == "finished"
    assert read_summary(folder)["rounds"] == 400


@pytest.mark.system
def test_plain_progress_lines_in_a_pipe(tmp_path: Path) -> None:
    command = [FEDSIM, "run", "--engine", "inline", "--out", str(tmp_path / "run"), "--set", "rounds=3", *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "fedavg on digits/iid: 3 rounds"
    assert lines[4].startswith("fedavg on digits/iid: after round 3/3  global 0.")
    assert "\x1b" not in done.stdout
    assert lines[-1] == f"run folder: {tmp_path / 'run'}"


@pytest.mark.system
def test_a_progress_bar_on_a_terminal(tmp_path: Path) -> None:
    arguments = [FEDSIM, "run", "--engine", "inline", "--out", str(tmp_path / "run"), "--set", "rounds=3", *QUICK]
    main_end, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(arguments, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(main_end)
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert "━" in text
    assert "3/3" in text
    assert "\x1b[" in text
