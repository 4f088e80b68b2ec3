"""Reports on metrics other than accuracy: directions, units, and runs with different objectives."""

import csv
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.cli import main
from fedsim.report.collection import RunCollection, collect_runs
from fedsim.report.export import FORMATS
from fedsim.report.page import content
from fedsim.report.result_tables import result_table
from fedsim.report.runs import RunResult
from fedsim.report.settings import group_by_setting
from fedsim.report.tables import metric_table
from fedsim.results.metric import ACCURACY, Metric
from fedsim.sweeps.manifest import PlannedRun, SearchResult, SweepManifest

CLASSIFICATION = {"name": "classification", "metrics": {"accuracy": "max", "loss": "min"}}
REGRESSION = {"name": "regression", "metrics": {"mse": "min", "r2": "max"}}
Rows = list[dict[str, float]]  # for each client, the metrics of its personal model


def write_run(folder: Path, objective: dict[str, Any], rounds: list[Rows], **config: object) -> Path:
    """A finished run with these evaluations; its local models have twice the values of the personal ones."""
    main_metric = next(iter(objective["metrics"]))
    clients = [{"id": i, "train": 1, "test": 1 + i, "labels": [1]} for i in range(len(rounds[0]))]
    keys = {"algorithm": "fedavg", "seed": 0, "rounds": len(rounds), "dataset": "digits", "pace": "auto", **config}
    manifest = {"status": "finished", "config": {"stragglers": "none", **keys}, "clients": clients}
    events: list[dict[str, Any]] = []
    for number, rows in enumerate(rounds, start=1):
        local = [{name: 2 * value for name, value in row.items()} for row in rows]
        job = {"base": number - 1, "sent": number - 1.0, "arrived": float(number), "staleness": 0}
        jobs = [{"id": i, **job, "local": row[main_metric], "metrics": {"local": row}} for i, row in enumerate(local)]
        step = {"kind": "step", "round": number, "time": float(number), "bytes_up": number, "bytes_down": number}
        tests = [
            {"id": i, "global": None, "personal": row[main_metric], "metrics": {"personal": row}}
            for i, row in enumerate(rows)
        ]
        evaluation = {"kind": "evaluation", "round": number, "seconds": float(number), "clients": tests}
        events += [{**step, "clients": jobs}, evaluation]
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "objective": objective}))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two regression runs of three rounds; `a` is best in round 2, `b` in round 3 and better."""
    a = [[{"mse": 4.0, "r2": 0.1}, {"mse": 2.0, "r2": 0.3}], [{"mse": 1.0, "r2": 0.5}, {"mse": 2.0, "r2": 0.4}]]
    a += [[{"mse": 3.0, "r2": 0.9}, {"mse": 1.0, "r2": 0.7}]]
    b = [
        [{"mse": 5.0, "r2": 0.1}] * 2,
        [{"mse": 3.0, "r2": 0.1}] * 2,
        [{"mse": 0.5, "r2": 0.1}, {"mse": 0.75, "r2": 0.1}],
    ]
    write_run(tmp_path / "runs" / "a", REGRESSION, a)
    write_run(tmp_path / "runs" / "b", REGRESSION, b, algorithm="local")
    return tmp_path / "runs"


def test_series_of_every_metric_and_kind(home: Path) -> None:
    run = RunResult.load(home / "a")
    assert list(run.metrics.values()) == [Metric("mse", "min"), Metric("r2", "max")]
    series = run.series("personal")
    assert series.metric.name == "mse"
    assert series.mean.tolist() == [3.0, 1.5, 2.0]
    assert series.worst.tolist() == [4.0, 2.0, 3.0], "the worst client has the highest error"
    assert (series.best_index, series.best) == (1, 1.5)
    assert run.series("personal", "r2").best == pytest.approx(0.8)
    assert run.series("personal", "r2").worst.tolist() == [0.1, 0.4, 0.7]
    assert run.series("local", "r2").values.tolist()[0] == [0.2, 0.6]
    assert len(run.series("global", "r2").rounds) == len(run.series("personal", "f1").rounds) == 0


def test_a_run_of_an_older_version_is_a_classification(home: Path) -> None:
    path = home / "a" / "manifest.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "objective"}))
    run = RunResult.load(home / "a")
    assert (run.objective, list(run.metrics.values())) == ("classification", [ACCURACY])
    assert run.series("personal").mean.tolist() == [3.0, 1.5, 2.0], "of the values under the kind itself"


def test_best_worst_and_targets_follow_the_direction(home: Path) -> None:
    a, b = group_by_setting(collect_runs([home]).runs)
    assert (a.best().mean, a.final().mean, a.worst().mean) == (1.5, 2.0, 3.0)
    assert (b.best().mean, b.best("local").mean) == (0.625, 1.25)
    assert a.clients == {(0, 0): 1.0, (0, 1): 2.0}, "in the round with the lowest mean"
    assert (a.rounds_to(1.5).mean, a.bytes_to(1.5).mean, a.rounds_to(1.4).mean) == (2, 4, None)
    table = result_table([a, b], target=1.5)
    best = next(column for column in table.columns if column.name == "best")
    assert [table.rank(best, row) for row in (0, 1)] == [1, 0]
    assert [best.text(row) for row in (0, 1)] == ["1.5", "0.625"]
    (to,) = [column for column in table.columns if column.name == "rounds to 1.5"]
    assert [to.text(row) for row in (0, 1)] == ["2.0", "2.6"], "b falls from 3 in round 2 to 0.625 in round 3"


def test_the_second_metric_is_chosen_by_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = collect_runs([home], "r2")
    assert found.metric == Metric("r2", "max")
    assert [each.best().mean for each in found.settings] == [pytest.approx(0.8), pytest.approx(0.1)]
    assert main(["report", str(home), "--metric", "accuracy"]) == 2
    assert "unknown metric 'accuracy'. Choices: mse, r2" in capsys.readouterr().err


def test_every_format_has_the_metric_as_a_plain_number(home: Path) -> None:
    tables = [result_table(collect_runs([home]).settings, 1.5)]
    texts = {name: render(tables) for name, render in FORMATS.items()}
    assert [row["metric"] for row in json.loads(texts["json"])] == ["mse", "mse"]
    assert [float(row["best"]) for row in csv.DictReader(texts["csv"].splitlines())] == [1.5, 0.625]
    assert "| local | 1 | **0.625** | **0.625** | **0.75** |" in texts["markdown"]
    assert r"local & 1 & \textbf{0.625} & \textbf{0.625} & \textbf{0.75}" in texts["latex"]
    assert r"fedavg & 1 & \underline{1.5} & \underline{2} & \underline{3}" in texts["latex"]


def test_the_command_writes_everything_about_the_metric(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, plots = home.parent / "page.html", home.parent / "plots"
    assert main(["report", str(home), "--target", "70", "--html", str(page), "--plot", str(plots)]) == 0
    text = capsys.readouterr().out
    assert "mse: personal models" in text
    assert "percent: personal" not in text
    assert "rounds to 70" in text
    assert {"mse.png", "mse-over-time.png", "mse-distribution.png"} <= {path.name for path in plots.iterdir()}
    assert '"metric":{"name":"mse","direction":"min","percent":false}' in page.read_text()


def test_tensorboard_has_the_metric(home: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        board = home.parent / "board"
        assert main(["report", str(home), "--metric", "r2", "--tensorboard", str(board)]) == 0
        found = accumulator.EventAccumulator(str(board / "fedavg"))
        found.Reload()
    assert [event.value for event in found.Scalars("r2/local")] == pytest.approx([0.4, 0.9, 1.6])


def test_the_page_has_the_direction_and_plain_values(home: Path) -> None:
    shown = content(collect_runs([home]))
    assert shown["metric"] == {"name": "mse", "direction": "min", "percent": False}
    assert shown["kinds"] == ["personal", "local"]
    assert shown["settings"][1]["curves"]["personal"]["mean"] == [5.0, 3.0, 0.625]
    assert shown["results"]["ranks"][1][1] == 0


def test_the_table_of_one_run(home: Path) -> None:
    table = metric_table([RunResult.load(home / "a")])
    assert "mse on each client's own test data" in str(table.title)
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells == ["fedavg", "1.5", "2", "2", "2", "2", "3"]


def test_different_objectives_are_refused_and_can_be_separated(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(home / "c", CLASSIFICATION, [[{"accuracy": 0.5, "loss": 1.0}]], dataset="mnist")
    assert main(["report", str(home)]) == 2
    error = capsys.readouterr().err
    assert f"regression ({home / 'a'}); classification ({home / 'c'})" in error
    lost = PlannedRun({"dataset": "mnist", "algorithm": "local"})
    found = collect_runs([home])
    parts = RunCollection(found.runs, [(home / "lost", lost)]).by_objective()
    assert {name: [run.folder.name for run in part.runs] for name, part in parts.items()} == {
        "regression": ["a", "b"],
        "classification": ["c"],
    }
    assert [each.label for each in parts["classification"].settings] == ["fedavg", "local"]
    assert parts["regression"].missing == []


def test_published_accuracies_are_shown_only_with_accuracy(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", CLASSIFICATION, [[{"accuracy": 0.5, "loss": 1.0}]])
    planned = PlannedRun(RunResult.load(folder).config, "", {"personal": (0.9, None)}, "a paper")
    SweepManifest("study", "", {"a": planned}).write(tmp_path)
    names = {
        name: [column.name for column in result_table(collect_runs([tmp_path], name).settings).columns]
        for name in ("accuracy", "loss")
    }
    assert "published" in names["accuracy"]
    assert "published" not in names["loss"]


def test_a_client_without_a_number_is_left_out_and_diverged_runs_can_be_reported(tmp_path: Path) -> None:
    rows: list[Rows] = [[{"mse": 1.0}, {"mse": 2.0}], [{"mse": math.nan}, {"mse": 8.0}], [{"mse": math.nan}] * 2]
    write_run(tmp_path / "runs" / "a", {"name": "regression", "metrics": {"mse": "min"}}, rows)
    found = collect_runs([tmp_path / "runs"])
    series = found.runs[0].series("personal")
    assert series.mean.tolist()[:2] == [1.5, 8.0]
    assert np.isnan(series.mean[2])
    assert series.best == 1.5
    (only,) = found.settings
    assert (only.final().mean, only.worst().mean) == (None, None)
    assert content(found)["settings"][0]["curves"]["personal"]["mean"] == [1.5, 8.0, None]


def test_a_search_knows_its_best_score() -> None:
    points = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
    assert SearchResult("a", points, [0.3, None, 0.5]).best == 2
    assert SearchResult("a", points, [0.3, None, 0.5], "mse", "min").best == 0
    stopped = SearchResult("a", points, [0.5, 0.4, 0.4], states=["stopped", "finished", "finished"])
    assert stopped.best == 1  # the first of equal ones; what was stopped does not count
    assert SearchResult("a", points, [None] * 3).best is None
