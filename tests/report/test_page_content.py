"""What the page holds, and that it stays small enough for a browser."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedsim.files import write_npz
from fedsim.report import page
from fedsim.report.collection import RunCollection
from fedsim.report.page import content, write_page
from tests.report.test_settings import run


def test_the_first_run_of_each_setting_is_drawn_and_what_does_not_fit_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [run([0.5, 0.6], seed=1), run([0.5, 0.6], seed=2), run([0.4, 0.3], algorithm="local")]
    monkeypatch.setattr(page, "ALL_JOBS", 4)
    shown = content(RunCollection(runs))["runs"]
    drawn = [sum(len(entry.get("j", [])) for entry in each["entries"]) for each in shown]
    assert [(jobs, each["left_out"]) for jobs, each in zip(drawn, shown, strict=True)] == [(2, 0), (0, 2), (2, 0)]


def test_large_matrices_are_thinned_and_then_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [0.5] * 10
    runs = [run(clients, tmp_path / name, lr=number) for number, name in enumerate("ab")]
    for each in runs:
        for number in range(1, 9):
            write_npz(each.folder / "matrices" / f"round-{number:06d}.npz", {"xi": np.full((10, 10), number)})
    monkeypatch.setattr(page, "ENTRIES", 400)
    monkeypatch.setattr(page, "ALL_ENTRIES", 700)
    first, second = content(RunCollection(runs))["runs"]
    assert first["matrices"]["xi"]["rounds"] == [1, 3, 6, 8]
    assert first["matrices"]["xi"]["values"][1] == [3.0] * 100
    assert second["matrices"] == {}
    assert second["unfit"] == 8


def test_what_runs_share_is_there_once() -> None:
    found = content(RunCollection([run([0.5], seed=seed) for seed in range(20)]))
    assert len({each["config"] for each in found["runs"]}) == 1
    assert len(found["shared"]) == 3  # configuration, versions, clients
    assert [each["seed"] for each in found["runs"]] == list(range(20))


def test_a_configuration_may_hold_infinite_numbers() -> None:
    found = content(RunCollection([run([0.5], **{"sageflow.entropy": float("inf")})]))
    assert found["shared"][found["runs"][0]["config"]]["sageflow.entropy"] == "inf"


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    write_page(RunCollection([run([0.5], tmp_path / "</script><b>", algorithm="<!--<script>")]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "</script><b>" not in text
    assert "<!--<script>" not in text
    data = text.split("const DATA = ")[1].split(";</script>")[0]
    assert json.loads(data)["settings"][0]["label"] == "<!--<script>"
