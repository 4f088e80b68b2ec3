"""What is read back from run folders, on a run small enough to check by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.report.figures import judged_figure, metric_figure, timeline_figure
from fedsim.report.runs import RunResult, display_names
from fedsim.results.curves import Curve


def step(number: int, time: float, clients: list[Any], wasted: list[Any] | None = None) -> dict[str, Any]:
    return {"kind": "step", "round": number, "time": time, "clients": clients, "wasted": wasted or [], "failures": []}


def job(client: int, sent: float, arrived: float, **further: object) -> dict[str, Any]:
    return {"id": client, "base": 0, "sent": sent, "arrived": arrived, **further}


@pytest.fixture
def run(tmp_path: Path) -> RunResult:
    """Two clients, two steps of two seconds: client 0 works all the time, client 1 is late once and then out at the
    end."""
    clients = [{"id": i, "train": 5, "test": 5, "labels": [5]} for i in (0, 1)]
    config = {"algorithm": "fedavg", "pace": "deadline", "stragglers": "speed"}
    (tmp_path / "manifest.json").write_text(json.dumps({"status": "finished", "config": config, "clients": clients}))
    events = [
        {"kind": "evaluation", "round": 0, "clients": [{"id": 0, "personal": 0.1}, {"id": 1, "personal": 0.3}]},
        step(1, 2.0, [job(0, 0.0, 2.0, staleness=0)]),
        {"kind": "evaluation", "round": 1, "clients": [{"id": 0, "personal": 0.5}, {"id": 1, "personal": None}]},
        step(2, 4.0, [job(0, 2.0, 4.0, staleness=1)], [job(1, 0.0, 3.0, reason="late")]),
        {"kind": "end", "round": 2, "in_flight": [{"id": 1, "base": 1, "sent": 3.5}]},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events) + '{"kind": "cut o')
    return RunResult.load(tmp_path)


def test_a_busy_client_keeps_its_number(run: RunResult) -> None:
    series = run.series("personal")
    assert series.rounds.tolist() == [0, 1]
    assert series.times.tolist() == [0.0, 2.0]
    assert series.values.tolist() == [[0.1, 0.3], [0.5, 0.3]]
    assert series.mean == pytest.approx([0.2, 0.4])
    assert series.worst.tolist() == [0.1, 0.3]


def test_every_job_is_accounted_for(run: RunResult) -> None:
    assert [(j.client, j.sent, j.arrived, j.staleness, j.reason) for j in run.jobs] == [
        (0, 0.0, 2.0, 0, ""),
        (0, 2.0, 4.0, 1, ""),
        (1, 0.0, 3.0, None, "late"),
        (1, 3.5, 4.0, None, "the run ended"),
    ]
    assert run.steps.tolist() == [2.0, 4.0]
    assert run.idle == [0.0, 0.125]


def test_figures_are_written(run: RunResult, tmp_path: Path) -> None:
    metric_figure([run, run], tmp_path / "a.png", over="times")
    timeline_figure(run, tmp_path / "t.png")
    assert min((tmp_path / name).stat().st_size for name in ("a.png", "t.png")) > 10_000
    assert not judged_figure(run, tmp_path / "judged.png")
    assert not (tmp_path / "judged.png").exists()


def test_labels_tell_runs_apart(run: RunResult, tmp_path: Path) -> None:
    other = RunResult(tmp_path / "other", {**run.manifest, "config": {"algorithm": "local"}}, [])
    assert display_names([run, other]) == ["fedavg", "local"]
    assert display_names([run, run])[0] == run.folder.name


def test_a_curve_by_hand() -> None:
    curve = Curve()
    assert curve.add(1, {0: 0.2, 1: 0.8}, {0: 30.0, 1: 10.0}) == pytest.approx(0.35)
    assert curve.add(2, {}) is None
    assert curve.add(3, {1: 0.4}, {0: 30.0, 1: 10.0}) == pytest.approx(0.25)
    summary = curve.summary([0, 1, 2])
    assert summary == {
        "best": pytest.approx(0.35),
        "best_round": 1,
        "final": pytest.approx(0.25),
        "per_client": [0.2, 0.4, None],
        "last_tested": [1, 3, None],
    }


def test_reporting_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
