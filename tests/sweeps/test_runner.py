"""Cells of a sweep, run in this process."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.config import RunConfig
from fedsim.engine import launch
from fedsim.sweeps.runner import Cell, run_cell


@pytest.fixture
def cell(small: Callable[..., RunConfig], tmp_path: Path) -> Cell:
    return Cell("one", small(f"out={tmp_path / 'one'}"))


def test_a_cell_runs_once_and_its_output_is_in_its_folder(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cell(cell.config.flat(), {}) == ""
    assert capsys.readouterr() == ("", "")
    output = (cell.folder / "log.txt").read_text()
    assert "after round 2/2" in output
    assert (cell.folder / ".lock").read_text() == f"{os.getpid()}\n"
    assert run_cell(cell.config.flat(), {}) == "", "it is finished"
    assert (cell.folder / "log.txt").read_text() == output
    found = Cell("one", cell.config)
    assert (found.status, found.was_done, found.metric.name) == ("finished", True, "accuracy")
    number, mean = found.progress()
    assert number == 2
    assert mean is not None


def test_the_traceback_of_an_unexpected_error_is_in_the_log(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(launch, "launch", broken)
    handlers = list(logging.getLogger("fedsim").handlers)
    failure = run_cell(cell.config.flat(), {})
    assert failure == f"RuntimeError: disk on fire; see {cell.folder / 'log.txt'}"
    assert "Traceback" in (cell.folder / "log.txt").read_text()
    assert logging.getLogger("fedsim").handlers == handlers
    cell.finish(failure)
    again = Cell("one", cell.config)
    assert (again.status, again.failure) == ("failed", failure)
    again.retry()
    assert (again.status, again.was_done, again.failure) == ("waiting", False, "")


def test_progress_has_the_metric_of_the_objective(cell: Cell) -> None:
    cell.folder.mkdir()
    objective = {"name": "regression", "metrics": {"mse": "min"}}
    (cell.folder / "manifest.json").write_text(json.dumps({"objective": objective}))
    assert cell.metric.text(0.123456) == "0.1235"
