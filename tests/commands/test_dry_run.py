"""`--dry-run` tells what the run itself would show, and leaves nothing behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.cli import main
from fedsim.commands.dry_run import duration, preview, size
from fedsim.config import RunConfig
from fedsim.partitions import cache
from fedsim.partitions.client_data import client_data


def everything(*folders: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize("algorithm", ["fedavg", "spfl", "fedproto"])
def test_a_preview_agrees_with_the_run(
    algorithm: str, small: Callable[..., RunConfig], finished: Callable[..., dict[str, Any]]
) -> None:
    config = small(f"algorithm={algorithm}", "rounds=3", "spfl.gamma=9")
    found, summary = preview(config, "inline"), finished(config)
    data = [client_data(config, client) for client in range(4)]
    assert found.samples == tuple(len(one.y_train) for one in data)
    assert found.tests == sum(len(one.y_test) for one in data)
    assert found.models == {"mlr": (650, 0)}
    assert (found.jobs, found.workers) == (4, 1)
    if algorithm == "fedavg":  # the others send more in the first round, or by the classes that a client has
        assert found.declared
        assert 3 * found.bytes_up == summary["bytes_up"] == 3 * 4 * 2600
        assert found.traffic == summary["bytes_up"] + summary["bytes_down"]
    assert found.bytes_up > 0
    assert 0 < found.seconds < 60
    assert found.memory > 50


def test_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSIM_CACHE", str(tmp_path / "cache"))
    assert main(["run", "--dry-run", "--set", "model=mlr", "--set", "clients=20", "--set", "participation=0.5"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "clients 20; 10 results in each of 20 rounds" in told
    assert "mlr: 650 parameters, 2.6 kB" in told
    assert "26.0 kB down, 26.0 kB up (as the algorithm declares); 1.1 MB in the whole run" in told
    assert "nothing was written" in told
    assert everything(tmp_path) == {}
    assert os.environ["FEDSIM_CACHE"] == str(tmp_path / "cache")
    assert main(["run", "--dry-run", "--set", "partition=pathological", "--set", "partition.classes=99"]) == 2
    assert everything(tmp_path) == {}


def test_what_a_round_needs_is_there_also_in_the_measurement(small: Callable[..., RunConfig]) -> None:
    """Krum compares many clients; a buffer counts results, not clients."""
    krum = preview(small("clients=6", "aggregator=krum", "attack=sign-flip"), "inline")
    assert (len(krum.samples), krum.jobs) == (6, 6)
    buffered = preview(small("algorithm=fedbuff", "pace.k=3", "workers=2"), "inline")
    assert (buffered.jobs, buffered.workers) == (3, 2)


def test_a_sweep_is_shown_by_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[base]\nmodel = "mlr"\nclients = 3\n[grid]\nalgorithm = ["fedavg", "local"]\nseed = [0, 1]\n'
    (tmp_path / "s.toml").write_text(f"{text}[search.over]\nlr = [0.1, 0.2]\n")
    before = everything(tmp_path, cache.root())
    assert main(["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "runs"), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert [told.count(f"{name}-seed=0 ") for name in ("fedavg", "local")] == [1, 1]
    assert "2 candidates on validation data" in told
    assert everything(tmp_path, cache.root()) == before


def test_units() -> None:
    assert [size(count) for count in (12, 1200, 3.2e6, 4.5e9)] == ["12 bytes", "1.2 kB", "3.2 MB", "4.5 GB"]
    assert [duration(seconds) for seconds in (0.1, 90, 600, 9000)] == ["1 s", "90 s", "10 min", "2.5 h"]
