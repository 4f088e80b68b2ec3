"""Sweeps: what a file means, and that nothing finished is ever lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fedsim.report.comparison import published_table

from fedsim import sweep
from fedsim.cli import main
from fedsim.errors import ConfigError
from fedsim.record import read_manifest, read_summary
from fedsim.report.runs import Run

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
    got = sweep.read(written(tmp_path, text))
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
    got = sweep.read(written(tmp_path, text))
    assert list(got.cells) == ["plain-seed=0", "plain-seed=1", "tuned-seed=0", "tuned-seed=1"]
    assert (got.cells["plain-seed=0"].lr, got.cells["tuned-seed=1"].lr) == (0.05, 0.3)
    assert got.cells["tuned-seed=0"].params("fedavg-ft").epochs == 4
    assert sweep.read(written(tmp_path, text), ["lr=0.7"]).cells["tuned-seed=0"].lr == 0.7


def test_a_file_may_start_from_another(tmp_path: Path) -> None:
    written(tmp_path, "[base]\nrounds = 7\nclients = 4\n[grid]\nseed = [1]\n", "common")
    got = sweep.read(written(tmp_path, 'include = "common.toml"\n[base]\nclients = 5\n'))
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
            sweep.read(written(tmp_path, text))
    with pytest.raises(ConfigError, match="sageflow-stragglers-digits"):
        sweep.read("sageflow")


@pytest.mark.parametrize("name", sweep.presets())
def test_every_preset_is_sound(name: str) -> None:
    got = sweep.read(name)
    assert got.about
    assert got.cells


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
    file, fedsim = written(tmp_path, text), str(Path(sys.executable).parent / "fedsim")

    def start(home: Path) -> "subprocess.Popen[bytes]":
        command = [fedsim, "sweep", file, "--jobs", "1", "--out", str(home)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    process, first = start(tmp_path / "killed"), tmp_path / "killed" / "seed=1"
    deadline = time.monotonic() + 60
    while not (first / "summary.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    earned = (first / "summary.json").stat().st_mtime_ns
    assert start(tmp_path / "killed").wait(timeout=120) == 0
    assert (first / "summary.json").stat().st_mtime_ns == earned
    assert start(tmp_path / "whole").wait(timeout=120) == 0

    def results(home: Path) -> list[str]:
        summaries = [read_summary(home / f"seed={seed}") for seed in (1, 2, 3)]
        return [json.dumps({k: v for k, v in s.items() if k != "seconds"}) for s in summaries]

    assert results(tmp_path / "killed") == results(tmp_path / "whole")
    assert read_manifest(tmp_path / "killed" / "seed=2")["status"] == "finished"


@pytest.mark.system
def test_a_search_chooses_on_validation_data_and_tells_what_it_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = QUICK + "[search.over]\nlr = [0.000001, 0.1]\n[published]\nseed = 90.5\n"
    home = tmp_path / "runs"
    assert main(["sweep", written(tmp_path, text), "--out", str(home)]) == 0
    told = capsys.readouterr().out
    assert "search for seed=1, on" in told
    assert "1e-06" in told
    assert read_manifest(home / "search" / "seed=1-0")["config"]["validation"] == 0.2
    for seed in (1, 2):
        config = read_manifest(home / f"seed={seed}")["config"]
        assert (config["lr"], config["validation"]) == (0.1, 0.0)
    assert len(list((home / "search").iterdir())) == 2, "seeds share one search"


def test_published_numbers_stand_beside_ours() -> None:
    runs = [run([0.5], Path("spfl-seed=1")), run([0.7], Path("spfl-seed=2")), run([0.1], Path("spfl-w-seed=1"))]
    table = published_table(runs, {"spfl-seed=1": 67.2, "spfl-w": 12.0, "other": 3.0})
    cells = list(zip(*(list(column.cells) for column in table.columns), strict=True))
    assert cells == [("spfl-seed=1", "50.00", "1", "67.2"), ("spfl-w", "10.00", "1", "12"), ("other", "-", "0", "3")]


def run(finals: list[float], folder: Path) -> Run:
    rows = [{"id": i, "personal": value} for i, value in enumerate(finals)]
    clients = [{"id": i} for i in range(len(finals))]
    return Run(folder, {"clients": clients}, [{"kind": "evaluation", "round": 0, "clients": rows}])
