"""The runs that a report finds in folders, and the messages about the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.report.collection import collect_runs
from fedsim.results.record import read_manifest
from fedsim.sweeps.manifest import PlannedRun, SweepManifest

Finished = Callable[..., dict[str, Any]]


@pytest.fixture
def home(small: Callable[..., RunConfig], finished: Finished, tmp_path: Path) -> Path:
    """A folder of one good run among things that are none."""
    finished(small(), name="runs/good")
    runs = tmp_path / "runs"
    for name in ("cut-off", "wordless", "strange"):
        shutil.copytree(runs / "good", runs / name)
    for manifest in ("manifest.json", "checkpoint/manifest.json"):
        (runs / "cut-off" / manifest).write_text('{"status": "runn')
    for events in ("events.jsonl", "checkpoint/events.jsonl"):
        (runs / "wordless" / events).write_text("")
    (runs / "strange" / "manifest.json").write_text('{"name": "a web app"}')
    (runs / "photos").mkdir()
    return runs


def test_what_is_no_run_is_named_and_left_out(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = collect_runs([home])
    assert [run.folder.name for run in found.runs] == ["good"]
    messages = caplog.messages
    for name in ("cut-off", "wordless", "strange", "photos"):
        assert sum(f"{home / name} " in line for line in messages) == 1, name
    assert all(line.startswith("left out: ") for line in messages)


def test_a_finished_run_is_reported_without_its_manifest(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "good" / "manifest.json").write_text("")
    assert [run.folder.name for run in collect_runs([home]).runs] == ["good"]
    assert f"{home}/good/manifest.json is missing or damaged" in caplog.text


def test_the_command_prints_what_is_left_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(home)]) == 0
    assert f"left out: {home / 'photos'} " in capsys.readouterr().out


def test_events_that_are_cut_off_count_as_far_as_they_go(home: Path) -> None:
    path = home / "good" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:50])
    (home / "good" / "checkpoint" / "events.jsonl").unlink()
    (run,) = collect_runs([home / "good"]).runs
    assert run.series("personal").rounds.tolist() == [0, 1]


def test_a_run_that_is_not_finished_counts_only_by_itself(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(home / "good", home / "half")
    manifest = read_manifest(home / "half")
    (home / "half" / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    assert [run.folder.name for run in collect_runs([home]).runs] == ["good"]
    unfinished = f"{home / 'half'} is not finished: running after round 2 of 2"
    assert f"left out: {unfinished}" in caplog.messages
    assert [run.folder.name for run in collect_runs([home / "half"]).runs] == ["half"]
    assert f"note: {unfinished}" in caplog.messages


def test_an_empty_selection_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert f"no run to report on in {tmp_path}" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_run_named_twice_counts_once(home: Path) -> None:
    assert len(collect_runs([home / "good", home / "good"]).runs) == 1


def test_planned_runs_that_do_not_exist_are_missing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = read_manifest(home / "good")["config"]
    SweepManifest("study", "", {"good": PlannedRun(config), "lost": PlannedRun({**config, "seed": 7})}).write(home)
    found = collect_runs([home])
    assert [(each.label, each.seeds) for each in found.settings] == [("fedavg", "1 of 2")]
    assert f"missing: {home / 'lost'}" in caplog.messages
    assert collect_runs([home / "good"]).missing == [], "the sweep was not given"


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
