"""Means and spreads over seeds, and the table for other programs."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.report import export
from fedsim.report.groups import Spread, group
from fedsim.report.runs import Run


def run(finals: list[float], **config: object) -> Run:
    """A run of one evaluated round, with these accuracies."""
    keys = {"algorithm": "fedavg", "seed": 0, "lr": 0.1, "rounds": 1, **config}
    clients = [{"id": i, "train": 1, "test": 1, "labels": [1]} for i in range(len(finals))]
    rows = [{"id": i, "personal": value} for i, value in enumerate(finals)]
    step: dict[str, Any] = {"kind": "step", "round": 1, "time": 4.0, "clients": [], "wasted": [], "failures": []}
    events = [step, {"kind": "evaluation", "round": 1, "clients": rows}]
    return Run(Path("somewhere"), {"config": keys, "clients": clients}, events)


def test_spread_uses_n_minus_one_and_a_single_seed_has_none() -> None:
    values = [0.1, 0.4, 0.7]
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.std == pytest.approx(np.std(values, ddof=1))
    assert Spread.of([0.5]) == Spread(0.5, None, 1)
    assert Spread.of([0.5]).text() == "0.500"
    assert Spread.of([None]).text() == "-"
    assert Spread.of([0.25, None, 0.75]).count == 2


def test_runs_that_differ_in_the_seed_belong_together() -> None:
    runs = [run([0.2], seed=1), run([0.5], algorithm="local"), run([0.4], seed=2), run([0.9], lr=0.2)]
    groups = group(runs)
    assert [(g.label, len(g.runs)) for g in groups] == [
        ("fedavg, lr=0.1", 2),
        ("local, lr=0.1", 1),
        ("fedavg, lr=0.2", 1),
    ]
    assert groups[0].final.mean == pytest.approx(0.3)


def test_the_worst_tenth_is_at_least_one_client() -> None:
    assert group([run([0.9, 0.2, 0.8])])[0].worst.mean == pytest.approx(0.2)
    twenty = [0.1, 0.3] + [0.9] * 18
    assert group([run(twenty)])[0].worst.mean == pytest.approx(0.2)


def test_targets() -> None:
    (only,) = group([run([0.6, 0.8])])
    assert (only.rounds_to(0.7).mean, only.seconds_to(0.7).mean) == (1, 4.0)
    assert only.rounds_to(0.71).mean is None


def test_every_format_says_the_same() -> None:
    runs = [run([0.2], seed=1), run([0.4], seed=2), run([0.9], algorithm="per_fed")]
    table = export.rows(group(runs), target=0.85)
    parsed = list(csv.DictReader(io.StringIO(export.as_csv(table))))
    assert float(parsed[0]["best"]) == pytest.approx(0.3)
    assert parsed[1]["best std"] == ""
    assert parsed[0]["rounds to 0.85"] == ""
    assert json.loads(export.as_json(table))[1]["best"] == 0.9
    assert "| fedavg | 2 | *0.300 ± 0.141* |" in export.as_markdown(table)
    latex = export.as_latex(table)
    assert r"per\_fed & 1 & \textbf{0.900}" in latex
    assert r"\underline{0.300 $\pm$ 0.141}" in latex


def test_equal_values_share_a_place() -> None:
    table = export.rows(group([run([0.5]), run([0.5], algorithm="local"), run([0.1], algorithm="other")]))
    assert export.as_markdown(table).count("**0.500**") == 6
