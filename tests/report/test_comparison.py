"""`fedsim compare`: two runs side by side."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.report.statistics import signed_rank
from fedsim.results.record import read_summary


@pytest.fixture
def runs(small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]], tmp_path: Path) -> tuple[str, str]:
    finished(small(), name="a")
    finished(small("lr=0.5", "algorithm=fedprox"), name="b")
    finished(small("partition=iid"), name="other")
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_runs_client_by_client(runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", *runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == {"algorithm": ["fedavg", "fedprox"], "lr": [0.05, 0.5]}
    one, two = (read_summary(Path(run))["accuracy"]["personal"] for run in runs)
    assert found["metrics"]["accuracy/personal"] == [pytest.approx(one["final"]), pytest.approx(two["final"])]
    assert list(found["clients"].values()) == [list(p) for p in zip(one["per_client"], two["per_client"], strict=True)]
    assert found["p"] == signed_rank(one["per_client"], two["per_client"])
    assert found["costs"]["MB sent"][0] == found["costs"]["MB sent"][1] > 0
    assert main(["compare", *runs, "--metric", "loss", "--plot", str(tmp_path / "p.png")]) == 0
    told = capsys.readouterr().out
    assert "loss of each client, personal models" in told
    assert "b is better than a for 4 clients, worse for 0, equal for 0" in told  # smaller losses
    assert (tmp_path / "p.png").stat().st_size > 10_000


def test_clients_with_other_data_are_not_tested(
    runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", runs[0], str(tmp_path / "other")]) == 0
    assert "no test: the clients hold different data" in capsys.readouterr().out
    assert main(["compare", runs[0], str(tmp_path)]) == 2
    assert main(["compare", *runs, "--metric", "los"]) == 2
    assert "Did you mean 'loss'" in capsys.readouterr().err
