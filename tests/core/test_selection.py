"""Which folders a report is about, and what it says of the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.plan import Plan, Planned
from fedsim.record import read_manifest
from fedsim.report.selection import select

Finished = Callable[..., dict[str, Any]]


@pytest.fixture
def home(small: Callable[..., RunConfig], finished: Finished, tmp_path: Path) -> Path:
    """A folder of one good run among things that are none."""
    finished(small(), name="runs/good")
    runs = tmp_path / "runs"
    for name in ("cut-off", "wordless", "strange"):
        shutil.copytree(runs / "good", runs / name)
    (runs / "cut-off" / "manifest.json").write_text('{"status": "runn')
    (runs / "wordless" / "events.jsonl").write_text("")
    (runs / "strange" / "manifest.json").write_text('{"name": "a web app"}')
    (runs / "photos").mkdir()
    return runs


def test_what_is_no_run_is_named_and_left_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = select([home])
    assert [run.folder.name for run in found.runs] == ["good"]
    told = capsys.readouterr().err.splitlines()
    for name in ("cut-off", "wordless", "strange", "photos"):
        assert sum(f"{home / name} " in line for line in told) == 1, name
    assert all(line.startswith("left out: ") for line in told)


def test_events_that_are_cut_off_count_as_far_as_they_go(home: Path) -> None:
    path = home / "good" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:50])
    (run,) = select([home / "good"]).runs
    assert run.series("personal").rounds.tolist() == [0, 1]


def test_a_run_that_is_not_finished_counts_only_by_itself(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(home / "good", home / "half")
    manifest = json.loads((home / "half" / "manifest.json").read_text())
    (home / "half" / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    assert [run.folder.name for run in select([home]).runs] == ["good"]
    told = f"{home / 'half'} is not finished: running after round 2 of 2"
    assert f"left out: {told}" in capsys.readouterr().err
    assert [run.folder.name for run in select([home / "half"]).runs] == ["half"]
    assert f"note: {told}" in capsys.readouterr().err


def test_an_empty_selection_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert f"no run to report on in {tmp_path}" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_run_named_twice_counts_once(home: Path) -> None:
    assert len(select([home / "good", home / "good"]).runs) == 1


def test_what_a_sweep_asked_for_and_is_not_there_is_missing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_manifest(home / "good")["config"]
    Plan("study", "", {"good": Planned(config), "lost": Planned({**config, "seed": 7})}).write(home)
    found = select([home])
    assert [(each.label, each.seeds) for each in found.groups] == [("fedavg", "1 of 2")]
    assert f"missing: {home / 'lost'}" in capsys.readouterr().err
    assert select([home / "good"]).missing == [], "nobody asked for the whole sweep"


def test_targets_that_make_no_sense(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(home / "good"), "--target", "70"]) == 2
    assert "--target must be" in capsys.readouterr().err


def test_the_files_a_report_writes(home: Path, tmp_path: Path) -> None:
    names = {name: tmp_path / f"table.{name}" for name in ("csv", "json", "markdown", "latex", "html")}
    options = [text for name, path in names.items() for text in (f"--{name}", str(path))]
    assert main(["report", str(home / "good"), "--target", "0.01", *options]) == 0
    (row,) = json.loads(names["json"].read_text())
    assert row["rounds to 1 %"] == 0
    assert row["MB to 1 %"] == 0, "nothing was sent before the first round"
    assert row["client MB"] > 1
    assert row["wall s"] > 0
    assert "training s" in names["csv"].read_text()
    assert names["html"].stat().st_size > 20_000
