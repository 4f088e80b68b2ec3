"""Sweeps: what a file means, and that nothing finished is ever lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsim.cli import main
from fedsim.commands.sweep import cells_table
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.results.record import read_manifest
from fedsim.sweeps.runner import Cell
from fedsim.sweeps.sweep_file import read_sweep

QUICK = """
about = "two seeds"
[base]
model = "mlr"
clients = 3
rounds = 2
[grid]
seed = [1, 2]
"""


def written(tmp_path: Path, text: str, name: str = "file") -> str:
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return str(path)


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    text = '[grid]\nalgorithm = ["fedavg", "local"]\nseed = [0, 1]\n"partition.alpha" = [0.1]\n'
    text += '[base]\npartition = "dirichlet"\n'
    got = read_sweep(written(tmp_path, text))
    assert list(got.cells) == [f"{a}-seed={s}-partition.alpha=0.1" for a in ("fedavg", "local") for s in (0, 1)]
    assert got.cells["local-seed=1-partition.alpha=0.1"].params("partition").alpha == 0.1


def test_cells_are_crossed_with_the_grid_and_algorithms_have_their_own_keys(tmp_path: Path) -> None:
    text = """
    [grid]
    seed = [0, 1]
    [with.fedavg-ft]
    lr = 0.3
    "fedavg-ft.epochs" = 4
    [cell.plain]
    algorithm = "fedavg"
    [cell.tuned]
    algorithm = "fedavg-ft"
    """
    got = read_sweep(written(tmp_path, text))
    assert list(got.cells) == ["plain-seed=0", "plain-seed=1", "tuned-seed=0", "tuned-seed=1"]
    assert (got.cells["plain-seed=0"].lr, got.cells["tuned-seed=1"].lr) == (0.05, 0.3)
    assert got.cells["tuned-seed=0"].params("fedavg-ft").epochs == 4
    assert read_sweep(written(tmp_path, text), ["lr=0.7"]).cells["tuned-seed=0"].lr == 0.7


def test_a_file_may_start_from_another(tmp_path: Path) -> None:
    written(tmp_path, "[base]\nrounds = 7\nclients = 4\n[grid]\nseed = [1]\n", "common")
    got = read_sweep(written(tmp_path, 'include = "common.toml"\n[base]\nclients = 5\n'))
    (config,) = got.cells.values()
    assert (config.rounds, config.clients, config.seed) == (7, 5, 1)


def test_files_that_make_no_sense(tmp_path: Path) -> None:
    for text, told in [
        ("", "holds no runs"),
        ("[cells.a]\n", "unknown part"),
        ("about =", "not valid TOML"),
        ("[grid]\nseed = 3\n", "a list of values for seed"),
        ("[cell.a]\nround = 3\n", "unknown config key 'round'"),
    ]:
        with pytest.raises(ConfigError, match=told):
            read_sweep(written(tmp_path, text))
    with pytest.raises(ConfigError, match="sageflow-stragglers-digits"):
        read_sweep("sageflow")


@pytest.mark.system
def test_a_sweep_runs_skips_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "runs"
    arguments = ["sweep", written(tmp_path, QUICK), "--jobs", "2", "--out", str(home)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "two seeds" in told
    assert "2 of 2 runs done" in told
    before = {path: path.stat().st_mtime_ns for path in home.glob("*/summary.json")}
    assert len(before) == 2
    for manifest in home.glob("*/manifest.json"):  # as if of a version that did not know this key yet
        about = json.loads(manifest.read_text())
        del about["config"]["inputs"]
        manifest.write_text(json.dumps(about))
    assert main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in home.glob("*/summary.json")} == before
    capsys.readouterr()
    assert main([*arguments, "--set", "rounds=3"]) == 2
    assert "another configuration" in capsys.readouterr().err


@pytest.mark.system
def test_a_failed_cell_is_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = QUICK + '[cell.good]\n[cell.bad]\npartition = "pathological"\n"partition.classes" = 99\n'
    arguments = ["sweep", written(tmp_path, text.replace("[1, 2]", "[1]")), "--out", str(tmp_path / "runs")]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "1 finished, 1 failed" in captured.out
    assert "failed: bad-seed=1" in captured.err
    assert "99" in captured.err
    bad = tmp_path / "runs" / "bad-seed=1" / "log.txt"
    tried = bad.stat().st_mtime_ns
    assert main(arguments) == 1
    assert bad.stat().st_mtime_ns == tried, "a failed run is not tried again unasked"
    assert main([*arguments, "--retry"]) == 1


@pytest.mark.system
def test_killed_and_called_again_it_ends_the_same(tmp_path: Path) -> None:
    text = QUICK.replace("rounds = 2", "rounds = 60\ncheckpoint-every = 5").replace("[1, 2]", "[1, 2, 3]")
    file = written(tmp_path, text)

    def start(home: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "fedsim.cli", "sweep", file, "--jobs", "1", "--out", str(home)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    process, first = start(tmp_path / "killed"), tmp_path / "killed" / "seed=1"
    second = tmp_path / "killed" / "seed=2" / "events.jsonl"
    deadline = time.monotonic() + 120
    while not ((first / "summary.json").exists() and second.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)  # the sweep alone: what it started must not go on behind its back
    process.wait()
    earned = (first / "summary.json").stat().st_mtime_ns
    assert start(tmp_path / "killed").wait(timeout=120) == 0
    assert (first / "summary.json").stat().st_mtime_ns == earned
    assert start(tmp_path / "whole").wait(timeout=120) == 0
    assert report(tmp_path / "killed", tmp_path) == report(tmp_path / "whole", tmp_path)
    assert read_manifest(tmp_path / "killed" / "seed=2")["status"] == "finished"


@pytest.mark.system
def test_a_worker_that_dies_takes_only_its_cell_along(tmp_path: Path) -> None:
    text = QUICK.replace("rounds = 2", "rounds = 150\ncheckpoint-every = 5")
    home, pid = tmp_path / "runs", tmp_path / "runs" / "seed=1" / ".lock"
    command = [sys.executable, "-m", "fedsim.cli", "sweep", written(tmp_path, text), "--out", str(home), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (pid.parent / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert process.wait(timeout=120) == 1
    assert "its worker died" in (pid.parent / "failure.txt").read_text()
    assert read_manifest(home / "seed=2")["status"] == "finished"
    assert subprocess.run([*command, "--retry"], stdout=subprocess.DEVNULL, timeout=120).returncode == 0
    assert read_manifest(pid.parent)["status"] == "finished"


def report(home: Path, tmp_path: Path) -> list[dict[str, object]]:
    """The final report without what depends on the machine: seconds and memory."""
    path = tmp_path / f"{home.name}.json"
    assert main(["report", str(home), "--target", "0.5", "--json", str(path)]) == 0
    measured = (" s", " s std", "client MB", "client MB std", "server MB", "server MB std")
    return [{k: v for k, v in row.items() if not k.endswith(measured)} for row in json.loads(path.read_text())]


@pytest.mark.system
def test_a_search_chooses_on_validation_data_and_tells_what_it_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUICK + "[search.over]\nlr = [0.000001, 0.1]\n"
    home = tmp_path / "runs"
    assert main(["sweep", written(tmp_path, text), "--out", str(home)]) == 0
    told = capsys.readouterr().out
    assert "search for seed=1, on" in told
    assert "1e-06" in told
    assert read_manifest(home / "search" / "seed=1-0")["config"]["validation"] == 0.2
    for seed in (1, 2):
        config = read_manifest(home / f"seed={seed}")["config"]
        assert (config["lr"], config["validation"]) == (0.1, 0.0)
    assert len(list((home / "search").glob("*/manifest.json"))) == 2, "seeds share one search"
    assert main(["report", str(home)]) == 0
    assert "search for seed=1" in capsys.readouterr().out, "reports know what was tried"


@pytest.mark.system
def test_reports_of_its_folder_know_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        QUICK.replace("[1, 2]", "[1]")
        + '[cell.ours]\n[cell.bad]\npartition = "pathological"\n"partition.classes" = 99\n'
    )
    text += '[published]\nsource = "a paper"\n[published.rows]\nours = ["67.25 0.5"]\nbad = [12]\n'
    home = tmp_path / "runs"
    assert main(["sweep", written(tmp_path, text), "--out", str(home)]) == 1
    assert "67.25 ± 0.50" in capsys.readouterr().out
    assert (home / "report.html").exists()
    assert main(["report", str(home)]) == 0
    told = capsys.readouterr()
    for words in ("67.25 ± 0.50", "12.00", "a paper", "0 of 1"):
        assert words in told.out
    assert f"missing: {home / 'bad-seed=1'}" in told.out


def test_the_live_table_tells_how_far_everything_is(tmp_path: Path) -> None:
    cells = [Cell(name, RunConfig(rounds=20, out=str(tmp_path / name))) for name in ("a", "b", "c", "d")]
    (tmp_path / "b").mkdir()
    evaluation = {"kind": "evaluation", "round": 10, "clients": [{"personal": 0.5}, {"personal": 0.25}]}
    (tmp_path / "b" / "events.jsonl").write_text(json.dumps(evaluation) + '\n{"kind": "st')
    cells[0].finish()
    cells[1].status = "running"
    cells[2].finish("no such data")
    table = cells_table(cells, passed=50.0)
    assert table.title == "1 done, 1 running, 1 failed, 1 left; 50 s, about 30 s to go"  # 2.5 of 4 in 50 s
    assert [list(column.cells) for column in table.columns][2:] == [["10/20", "", "", ""], ["37.5 %", "", "", ""]]
    assert Cell("c", RunConfig(rounds=20, out=str(tmp_path / "c"))).failure == "no such data"
