"""What `fedsim partition` and `fedsim data` say, draw and refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.partitions.client_data import client_data
from fedsim.partitions.summary import summarize
from fedsim.report.heterogeneity import DISTANCES

SHARDS = ["partition", "--set", "partition=shards", "--set", "clients=6"]


def test_the_summary_counts_what_the_clients_hold(small: Callable[..., RunConfig]) -> None:
    config = small()
    found = summarize(config)
    data = [client_data(config, client) for client in range(4)]
    assert found.trains.tolist() == [len(d.y_train) for d in data]
    assert found.tests.tolist() == [len(d.y_test) for d in data]
    assert found.counts[1].tolist() == np.bincount(data[1].y_train, minlength=10).tolist()
    assert list(found.distances) == list(DISTANCES)
    for matrix in found.distances.values():
        assert matrix == pytest.approx(matrix.T)
        assert np.diagonal(matrix) == pytest.approx(np.zeros(4), abs=1e-9)
    assert sorted(found.order) == [0, 1, 2, 3]


@pytest.mark.parametrize("key", list(DISTANCES))
def test_every_measure_sees_label_skew_and_rotation(small: Callable[..., RunConfig], key: str) -> None:
    iid, skewed, rotated = (
        summarize(small(f"partition={name}")).mean_distance(key) for name in ("iid", "shards", "feature-shift")
    )
    assert iid < skewed
    assert iid < rotated


def test_a_single_client_is_at_distance_zero(small: Callable[..., RunConfig]) -> None:
    found = summarize(small("clients=1", "partition=iid"))
    assert [found.mean_distance(key) for key in DISTANCES] == [0, 0, 0, 0]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SHARDS) == 0
    out = capsys.readouterr().out
    assert "digits, shards, 6 clients, seed 0" in out
    assert all(title in out for title in DISTANCES.values())


def test_many_clients_are_shown_by_the_ends_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "--set", "clients=50"]) == 0
    assert "30 more: --json lists all" in capsys.readouterr().out


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHARDS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dataset"], found["partition"], len(found["clients"])) == ("digits", "shards", 6)
    assert sum(client["train"] for client in found["clients"]) == 1442
    for client in found["clients"]:
        assert sum(client["counts"]) == client["train"]
        assert client["labels"] == np.flatnonzero(client["counts"]).tolist()
    assert set(found["mean_distance"]) == set(DISTANCES)


def test_a_comparison(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "compared.png"
    assert main(["partition", "--compare", "iid, pathological", "--json", "--plot", str(plot)]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert [first["partition"], second["partition"]] == ["iid", "pathological"]
    assert all(first["mean_distance"][key] < second["mean_distance"][key] for key in DISTANCES)
    assert imread(plot).std() > 0.05


def test_the_plot_shows_something(tmp_path: Path) -> None:
    plot = tmp_path / "fedsim.clients.png"
    assert main([*SHARDS, "--plot", str(plot)]) == 0
    image = imread(plot)
    assert image.shape[1] > 1500
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 50


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["partition", "--compare", "iid,shard"], "Did you mean 'shards'?"),
        (
            ["partition", "--compare", "iid", "--set", "partition=classes", "--set", "partition.classes=2"],
            "partition.* keys",
        ),
        (["partition", "--plot", "/nowhere/at/all.png"], "no folder /nowhere/at"),
        (["partition", "--set", "partition.classes=99"], "more than the 10 classes"),
        (["data", "digit"], "Did you mean 'digits'?"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    last = capsys.readouterr().err.strip().split("\n")[-1]
    assert last.startswith("fedsim: ")
    assert says in last


def test_data_prepares_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.zeros((9, 4, 6, 3), np.uint8), np.arange(9) % 3
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    assert main(["data", "mine", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "mine: 9 training and 3 test samples, 3 classes, images 4x6x3\n"
    assert "12/12" in shown.err
