"""Regression and next-token prediction from the command line: the same commands, the right metrics and directions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import registry
from fedsim.cli import main
from fedsim.client.jobs import check_targets
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import ClientData
from fedsim.results.record import read_summary
from fedsim.sweeps.runner import Cell, run_cell
from fedsim.sweeps.search import Search
from fedsim.sweeps.study import run_search


def save(path: Path, x: Any, y: Any, owner: Any, **further: Any) -> str:
    train, test = slice(0, 240), slice(240, 300)
    parts = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    np.savez(path, **parts, user_train=owner[train], user_test=owner[test], **further)
    return str(path)


@pytest.fixture
def regression(tmp_path: Path) -> str:
    """Every owner has an offset of its own, so that an own head helps."""
    rng = np.random.default_rng(0)
    x, owner = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 4, 300)
    y = (x @ np.array([1, -1, 2, 0]) + 3 * owner).astype(np.float32)
    return save(tmp_path / "houses.npz", x, y, owner.astype(str), objective="regression")


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    """After token t comes t + 1; texts end with padding."""
    rng = np.random.default_rng(0)
    text = (rng.integers(0, 5, 300)[:, None] + np.arange(9)) % 5 + 1
    text[np.arange(9) > rng.integers(4, 9, 300)[:, None]] = 0
    owner = rng.integers(0, 4, 300).astype(str)
    return save(
        tmp_path / "text.npz", text[:, :-1], text[:, 1:], owner, objective="next-token", vocabulary=6, classes=6
    )


def fedsim(command: str, *arguments: str, **keys: Any) -> None:
    settings = [f"--set={key.replace('_', '-')}={value}" for key, value in keys.items()]
    assert main([command, *arguments, *settings]) == 0


def test_regression_from_the_command_line(
    regression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fedsim("data", regression)
    assert "real-valued targets (regression)" in capsys.readouterr().out
    common = {"dataset": regression, "clients": 4, "model": "mlp", "rounds": 4, "lr": 0.05, "partition": "by-user"}
    fedsim("partition", dataset=regression, clients=4, partition="by-user")
    for algorithm in ("fedavg", "fedper"):
        fedsim("run", "--engine=inline", algorithm=algorithm, **common)  # below runs/, though the dataset is a path
    folders = sorted((tmp_path / "runs").iterdir())
    assert ["houses" in folder.name for folder in folders] == [True, True]
    summaries = [read_summary(folder) for folder in folders]
    best = {s["algorithm"]: s["metrics"]["mse"]["personal"]["best"] for s in summaries}
    assert best["fedper"] < best["fedavg"]
    for summary in summaries:
        series = summary["metrics"]["mse"]["global"]
        assert series["best"] is None or series["best"] <= series["final"]
        assert set(summary["metrics"]) == {"mse", "mae"}
        assert summary["accuracy"]["personal"]["best"] is None
    capsys.readouterr()
    fedsim("report", "runs", "--json=r.json", "--html=r.html", "--plot=figures", "--markdown=r.md", "--target=1e9")
    shown = capsys.readouterr().out
    assert "mse: personal models" in shown
    assert "BMTA" not in shown
    rows = {row["setting"]: row for row in json.loads(Path("r.json").read_text())}
    assert {name: row["best"] for name, row in rows.items()} == best
    assert rows["fedavg"]["worst 10 %"] > rows["fedavg"]["final"]  # the worst client has the largest error
    assert rows["fedavg"]["rounds to 1e+09"] == 0
    (line,) = [line for line in Path("r.md").read_text().splitlines() if line.startswith("| fedper |")][:1]
    assert f"**{best['fedper']:.4g}**" in line  # the smaller error is the best
    assert '"direction":"min"' in Path("r.html").read_text()
    assert (tmp_path / "figures" / "mse.png").exists()


def test_next_tokens_from_the_command_line(
    tokens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = {"dataset": tokens, "clients": 2, "rounds": 4, "optimizer": "adam", "lr": 0.02, "batch_size": 16}
    fedsim("run", "--engine=inline", "--out=run", model="char-lstm-lm", **keys)
    metrics = read_summary(tmp_path / "run")["metrics"]
    assert list(metrics) == ["accuracy", "loss", "perplexity"]
    assert metrics["accuracy"]["personal"]["final"] > 0.9  # of tokens that are no padding
    perplexity = metrics["perplexity"]["personal"]
    assert perplexity["best"] == min(perplexity["best"], perplexity["final"]) < 2
    fedsim("report", "run", "--metric=perplexity", "--json=r.json")
    (row,) = json.loads(Path("r.json").read_text())
    assert (row["metric"], row["best"]) == ("perplexity", pytest.approx(perplexity["best"]))
    capsys.readouterr()
    assert main(["partition", f"--set=dataset={tokens}", "--set=partition=shards"]) == 2
    assert "have no class labels; use" in capsys.readouterr().err


def test_a_search_prefers_small_errors(regression: str, tmp_path: Path) -> None:
    def run(cells: list[Cell]) -> None:
        for cell in cells:
            cell.finish(run_cell(cell.config.flat(), {}))

    config = RunConfig(dataset=regression, model="mlr", clients=2, rounds=2)
    chosen, (found,) = run_search(Search(space=(("lr", (1e-6, 0.01)),)), {"a": config}, tmp_path, run)
    assert isinstance(found.scores[0], float)
    assert isinstance(found.scores[1], float)
    assert (found.metric, found.direction) == ("mse", "min")
    assert found.scores[1] < found.scores[0]
    assert chosen["a"].lr == 0.01


def data(targets: Any, classes: int, objective: str) -> ClientData:
    x = np.zeros((len(targets), 2), np.float32)
    return ClientData(x, targets, x, targets, classes, objective)


def test_algorithms_that_need_classes_refuse_other_targets() -> None:
    real, labels = np.zeros(3, np.float32), np.zeros(3, np.int64)
    several = np.zeros((3, 7), np.int64)
    needs = {
        kind: [n for n in registry.names("algorithm") if registry.find("algorithm", n).targets == kind]
        for kind in ("classes", "labels")
    }
    assert {"fedrod", "fml"} <= set(needs["classes"])
    assert {"fedproto", "feddistill", "kt-pfl"} <= set(needs["labels"])
    for name in (*needs["classes"], *needs["labels"]):
        check_targets(RunConfig(algorithm=name), data(labels, 4, "classification"))
        check_targets(RunConfig(algorithm=name), data(labels, 4, "next-token"))  # one token per window
        with pytest.raises(ConfigError, match=r"regression\) are real numbers.*Algorithms that can learn them: apfl"):
            check_targets(RunConfig(algorithm=name), data(real, 0, "regression"))
    for name in needs["labels"]:
        with pytest.raises(ConfigError, match=f"{name} needs one class label per sample, .* are 7 tokens per sample"):
            check_targets(RunConfig(algorithm=name), data(several, 4, "next-token"))
    check_targets(RunConfig(algorithm="fedrod"), data(several, 4, "next-token"))
