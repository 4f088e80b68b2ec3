"""Where a run's seconds and memory went."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import peak_memory as memory
from fedsim.config import RunConfig
from fedsim.report.runs import RunResult

Finished = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("keys", [[], ["pace=window", "stragglers=uniform-rounds", "rounds=4"]])
def test_the_parts_of_a_run_in_one_process_fit_into_its_wall_time(
    small: Callable[..., RunConfig], finished: Finished, tmp_path: Path, keys: list[str]
) -> None:
    summary = finished(small(*keys))
    run = RunResult.load(tmp_path / "run")
    costs = run.costs
    assert min(costs.seconds.values()) > 0, "training, communication, aggregation and evaluation all take time"
    assert sum(costs.seconds.values()) <= costs.wall
    assert costs.traffic == summary["bytes_up"] + summary["bytes_down"] > 0
    assert set(costs.client_memory) == {0, 1, 2, 3}
    assert min(costs.client_memory.values()) > 10
    assert costs.server_memory is not None
    assert costs.server_memory > 10
    assert costs.gpu_memory == {}


def test_accuracies_and_traffic_are_those_of_the_summary(
    small: Callable[..., RunConfig], finished: Finished, tmp_path: Path
) -> None:
    summary = finished(small())
    run = RunResult.load(tmp_path / "run")
    for kind in ("global", "personal", "local"):
        assert run.series(kind).mean[-1] == pytest.approx(summary["accuracy"][kind]["final"]), kind
    sent = run.series("personal").traffic
    assert sent[0] == 0
    assert 0 < sent[1] < sent[2] <= summary["bytes_up"] + summary["bytes_down"]


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="only Linux can reset the peak")
def test_a_peak_can_be_reset() -> None:
    large = np.ones(40_000_000)  # 320 MB
    high = memory.peak()
    del large
    memory.reset()
    assert memory.peak() < high - 200
