"""The target of a run: when it is reached, what the summary says of it, and where the run stops."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.results.metric import ACCURACY, Metric
from fedsim.results.record import read_events, read_manifest
from tests.resuming import check_resuming

Small = Callable[..., RunConfig]
Finished = Callable[..., dict[str, Any]]


def test_the_crossing_of_the_best_so_far_by_hand() -> None:
    values, rounds = np.array([0.1, 0.5, 0.3, 0.45, 0.9]), np.array([0, 10, 20, 30, 40])
    assert ACCURACY.crossing(values, 0.3, rounds) == pytest.approx(5), "halfway from 0.1 to 0.5"
    assert ACCURACY.crossing(values, 0.5, rounds) == 10
    assert ACCURACY.crossing(values, 0.6, rounds) == pytest.approx(32.5), "a quarter from the best so far, 0.5, to 0.9"
    assert ACCURACY.crossing(values, 0.05, rounds) == 0, "from the beginning"
    assert ACCURACY.crossing(values, 0.91, rounds) is None
    assert ACCURACY.crossing(np.zeros(0), 0.5, np.zeros(0)) is None
    assert ACCURACY.crossing(np.array([np.nan, 0.8]), 0.5, np.array([0, 10])) == 10, "nothing is known before"
    assert Metric("mse", "min").crossing(np.array([3.0, 1.0]), 1.5, np.array([2, 3])) == pytest.approx(2.75)


def test_a_run_stops_one_round_after_its_target(small: Small, finished: Finished, tmp_path: Path) -> None:
    keys = ["partition=iid", "rounds=30", "lr=0.1"]
    whole = finished(small(*keys, "rounds=6"), name="whole")
    sizes = [client["test"] for client in read_manifest(tmp_path / "whole")["clients"]]
    evaluations = [event["clients"] for event in read_events(tmp_path / "whole") if event["kind"] == "evaluation"]
    curve = [float(np.average([row["global"] for row in rows], weights=sizes)) for rows in evaluations]
    aim = (curve[2] + curve[3]) / 2  # the curve of this run rises
    assert curve == sorted(curve)
    found = finished(small(*keys, f"target={aim}"), name="stopped")
    steps = [event for event in read_events(tmp_path / "stopped") if event["kind"] == "step"]
    assert len(steps) == 4, "round 3 reaches it, which is known in round 4"
    told = found["target"]
    assert (told["metric"], told["value"]) == ("accuracy", pytest.approx(aim))
    assert told["round"] == pytest.approx(2.5)
    assert told["virtual_seconds"] == pytest.approx((steps[1]["time"] + steps[2]["time"]) / 2)
    assert told["bytes"] == pytest.approx(sum(s["bytes_up"] + s["bytes_down"] for s in steps[1:3]) / 2)
    assert read_manifest(tmp_path / "stopped")["status"] == "finished"
    assert "target" not in whole
    missed = finished(small(*keys, "rounds=2", "target=1"), name="missed")["target"]
    assert (missed["round"], missed["virtual_seconds"], missed["bytes"]) == (None, None, None)


def test_a_resumed_run_stops_where_it_would_have(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_resuming(small("partition=iid", "rounds=30", "lr=0.1", "target=0.92"), tmp_path, monkeypatch)
    assert 3 < len([event for event in read_events(tmp_path / "whole") if event["kind"] == "step"]) < 30


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["target=97"], "target must be above 0 and at most 1, not 97: accuracy is a share"),
        (["target=-1"], "target must be at least 0"),
        (["target=0.5", "algorithm=local"], "target=0.5 is of the global model, but local has none"),
    ],
)
def test_targets_that_cannot_be(keys: list[str], message: str, small: Small, finished: Finished) -> None:
    with pytest.raises(ConfigError, match=message):
        finished(small(*keys))


def test_metrics_of_training_data_are_pooled_by_training_samples(
    small: Small, finished: Finished, tmp_path: Path
) -> None:
    found = finished(small("eval-training=true"))["metrics"]
    assert list(found) == ["accuracy", "loss", "training-accuracy", "training-loss"]
    sizes = [client["train"] for client in json.loads((tmp_path / "run" / "manifest.json").read_text())["clients"]]
    own = found["training-loss"]["global"]
    assert own["final"] == pytest.approx(np.average(own["per_client"], weights=sizes))
    assert own["per_client"] != found["loss"]["global"]["per_client"]
    assert "training-loss" not in finished(small(), name="plain")["metrics"]
