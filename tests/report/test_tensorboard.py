"""What TensorBoard finds in an exported run."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.report.runs import RunResult


def test_curves_are_read_back(
    small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    finished(small())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        assert main(["report", str(tmp_path / "run"), "--tensorboard", str(tmp_path / "board")]) == 0
        found = accumulator.EventAccumulator(str(tmp_path / "board" / "fedavg"))
        found.Reload()
    series = RunResult.load(tmp_path / "run").series("personal")
    read = [(event.step, event.value) for event in found.Scalars("accuracy/personal")]
    assert read == [(number, pytest.approx(mean)) for number, mean in zip(series.rounds, series.mean, strict=True)]
    assert {"worst client/personal", "accuracy/global", "virtual seconds"} <= set(found.Tags()["scalars"])
