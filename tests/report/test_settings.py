"""Means and spreads over seeds, and the table for other programs."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.report import export
from fedsim.report.result_tables import ResultTable, cost_table, result_table
from fedsim.report.runs import RunResult
from fedsim.report.settings import MeanStd, group_by_setting
from fedsim.sweeps.manifest import PlannedRun


def run(finals: list[float], folder: Path = Path("somewhere"), **config: object) -> RunResult:
    """A run of one evaluated round, with these accuracies."""
    keys = {"algorithm": "fedavg", "seed": 0, "lr": 0.1, "rounds": 1, **config}
    clients = [{"id": i, "train": 1, "test": 1, "labels": [1]} for i in range(len(finals))]
    rows = [{"id": i, "personal": value} for i, value in enumerate(finals)]
    step: dict[str, Any] = {"kind": "step", "round": 1, "time": 4.0, "bytes_up": 3_000_000, "bytes_down": 5_000_000}
    job = {"base": 0, "sent": 0.0, "arrived": 4.0, "staleness": 0}
    step["clients"] = [{"id": i, **job, "cost": {"memory": 100.0 + i}} for i in range(len(finals))]
    step["cost"] = {"training": 2.0, "communication": 0.25, "aggregation": 0.5, "evaluation": 0.0, "memory": 300.0}
    tests = {"training": 0.0, "communication": 0.25, "aggregation": 0.0, "evaluation": 1.0, "memory": 310.0}
    events = [step, {"kind": "evaluation", "round": 1, "seconds": 9.5, "clients": rows, "cost": tests}]
    return RunResult(folder, {"config": keys, "clients": clients}, events)


def text(table: ResultTable, row: int, column: str) -> str:
    return next(c.text(row) for c in table.columns if c.name == column)


def test_spread_uses_n_minus_one_and_a_single_seed_has_none() -> None:
    values = [0.1, 0.4, 0.7]
    spread = MeanStd.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.std == pytest.approx(np.std(values, ddof=1))
    assert MeanStd.of([0.5]) == MeanStd(0.5, None, 1, 1)
    assert MeanStd.of([0.5]).text() == "0.500"
    assert MeanStd.of([None]).text() == "-"
    assert MeanStd.of([0.2, None, 0.4]).text(".1f", 100) == "30.0 ± 14.1 (2 of 3)", "runs without a value are counted"


def test_runs_that_differ_in_the_seed_belong_together() -> None:
    runs = [run([0.2], seed=1), run([0.5], algorithm="local"), run([0.4], seed=2), run([0.9], lr=0.2)]
    groups = group_by_setting(runs)
    assert [(g.label, len(g.runs)) for g in groups] == [
        ("fedavg, lr=0.1", 2),
        ("local", 1),
        ("fedavg, lr=0.2", 1),
    ]
    assert groups[0].final().mean == pytest.approx(0.3)


def test_the_worst_tenth_is_at_least_one_client() -> None:
    assert group_by_setting([run([0.9, 0.2, 0.8])])[0].worst().mean == pytest.approx(0.2)
    twenty = [0.1, 0.3] + [0.9] * 18
    assert group_by_setting([run(twenty)])[0].worst().mean == pytest.approx(0.2)


def test_targets() -> None:
    (only,) = group_by_setting([run([0.6, 0.8])])
    assert (only.rounds_to(0.7).mean, only.seconds_to(0.7).mean, only.bytes_to(0.7).mean) == (1, 4.0, 8_000_000)
    assert only.rounds_to(0.71).mean is None


def test_every_format_says_the_same() -> None:
    runs = [run([0.2], seed=1), run([0.4], seed=2), run([0.9], algorithm="per_fed")]
    groups = group_by_setting(runs)
    tables = [result_table(groups, target=0.85), cost_table(groups)]
    parsed = list(csv.DictReader(io.StringIO(export.as_csv(tables))))
    assert float(parsed[0]["best"]) == pytest.approx(0.3)
    assert parsed[1]["best std"] == ""
    assert parsed[0]["rounds to 85 %"] == ""
    assert float(parsed[1]["MB to 85 %"]) == 8_000_000
    assert float(parsed[0]["training s"]) == 2.0
    assert json.loads(export.as_json(tables))[1]["best"] == 0.9
    assert "| fedavg | 2 | *30.00 ± 14.14* |" in export.as_markdown(tables)
    latex = export.as_latex(tables)
    assert r"per\_fed & 1 & \textbf{90.00}" in latex
    assert r"\underline{30.00 $\pm$ 14.14}" in latex
    assert r"worst 10 \%" in latex


def test_values_that_print_alike_share_a_place() -> None:
    runs = [
        run([0.5]),
        run([0.500001], algorithm="local"),
        run([0.1], algorithm="other"),
        run([0.05], algorithm="last"),
    ]
    markdown = export.as_markdown([result_table(group_by_setting(runs))])
    assert markdown.count("**50.00**") == 6
    assert markdown.count("*10.00*") == 3, "the next one is the second"
    assert "*5.00*" not in markdown


def test_only_settings_on_the_same_data_compete() -> None:
    runs = [
        run([0.9], partition="iid"),
        run([0.4], partition="shards"),
        run([0.3], partition="shards", algorithm="local"),
    ]
    markdown = export.as_markdown([result_table(group_by_setting(runs))])
    assert "**90.00**" not in markdown, "it has no rival"
    assert "**40.00**" in markdown
    assert "*30.00*" in markdown


def test_costs_add_up_and_peaks_are_the_highest() -> None:
    table = cost_table(group_by_setting([run([0.5, 0.6])]))
    shown = {column.name: column.text(0) for column in table.columns}
    assert shown == {
        "wall s": "9.5",
        "training s": "2.0",
        "communication s": "0.5",
        "aggregation s": "0.5",
        "evaluation s": "1.0",
        "MB sent": "8.0",
        "client MB": "101",
        "server MB": "310",
    }


def test_missing_runs_are_shown() -> None:
    there = run([0.5], seed=1)
    missing = [PlannedRun({**there.config, "seed": 2}), PlannedRun({**there.config, "algorithm": "local", "seed": 1})]
    table = result_table(group_by_setting([there], missing))
    assert [each.label for each in table.settings] == ["fedavg", "local"]
    assert (text(table, 0, "seeds"), text(table, 1, "seeds")) == ("1 of 2", "0 of 1")
    assert (text(table, 0, "best"), text(table, 1, "best")) == ("50.00", "-")


def test_a_curve_over_seeds_ends_where_the_shortest_does() -> None:
    (both,) = group_by_setting([run([0.2, 0.4], seed=1), run([0.6, 0.6], seed=2)])
    band = both.curve()
    assert band is not None
    assert [v.tolist() for v in (band.x, band.low, band.high)] == [
        [1.0],
        [pytest.approx(0.3)],
        [pytest.approx(0.6)],
    ]
    assert band.mean.tolist() == [pytest.approx(0.45)]
