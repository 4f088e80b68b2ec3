"""What `fedsim partition` and `fedsim data` say, draw and refuse."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread

from fedsim.cli import main
from fedsim.clients.layers import layer_similarity
from fedsim.commands.partition import MEASURES
from fedsim.config import RunConfig
from fedsim.partitions import datasets
from fedsim.partitions.class_angles import angles, embedded
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


def test_another_distance_can_be_drawn(tmp_path: Path) -> None:
    angles, emd = tmp_path / "angles.png", tmp_path / "emd.png"
    for plot, measure in ((angles, "eq2"), (emd, "emd")):
        assert main(["partition", "--compare", "iid,shards", "--measure", measure, "--plot", str(plot)]) == 0
    assert not np.array_equal(imread(angles), imread(emd))
    assert tuple(DISTANCES) == MEASURES


def test_layers_of_models_trained_on_other_data_are_less_alike(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "layers.png"
    command = [
        "partition",
        "--layers",
        "--compare",
        "iid,pathological",
        "--set",
        "clients=4",
        "--set",
        "local-epochs=2",
    ]
    assert main([*command, "--json", "--plot", str(plot)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["iid"]) == ["base.0", "base.2", "head"]
    for layer in found["iid"]:
        iid, skewed = (np.array(found[name][layer]) for name in ("iid", "pathological"))
        assert np.diagonal(iid) == pytest.approx(np.ones(4))
        assert iid == pytest.approx(iid.T)
        assert iid.mean() > skewed.mean()
    assert imread(plot).std() > 0.05
    assert main(command) == 0
    assert "mean CKA between two clients' models" in capsys.readouterr().out


def test_untrained_models_are_alike(small: Callable[..., RunConfig]) -> None:
    """A rate of almost nothing leaves every client with the common start."""
    for similarity in layer_similarity(small("model=mlp", "lr=1e-12")).values():
        assert similarity == pytest.approx(np.ones((4, 4)))


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
        (["data", "digits", "--plot", "angles.png"], "give --angles, too"),
        (["data", "digits", "--angles", "--plot", "/nowhere/at/all.png"], "no folder /nowhere/at"),
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
    assert shown.err == ""  # it took less than a second


def test_angles_between_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "digits.png"
    assert main(["data", "digits", "--angles", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "digits: angles between classes in degrees, 3 directions, Eq. 2" in out
    assert "super clusters, cut at the widest gap: {0" in out
    assert "published" not in out
    assert imread(plot).std() > 0.05


def test_angles_between_datasets_stand_beside_the_published_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for name, side in (("fmnist", 8), ("usps", 6)):
        x, y = rng.integers(0, 255, (40, side, side)).astype(np.uint8), np.arange(40) % 10
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    plot = tmp_path / "both.png"
    assert main(["data", "fmnist+usps", "--root", str(tmp_path), "--angles", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    [line] = [line for line in out.split("\n") if "fmnist - usps" in line]
    assert "43.36" in line
    assert "86.7" in line
    assert imread(plot).std() > 0.05


def test_published_clusters_are_compared_with_those_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images of two kinds, in the places of Fashion-MNIST's three published groups."""
    rng, y = np.random.default_rng(0), np.arange(200) % 10
    kinds = rng.integers(0, 200, (2, 8, 8))
    x = (kinds[y % 2] + rng.integers(0, 40, (200, 8, 8))).astype(np.uint8)
    np.savez(tmp_path / "fmnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert main(["data", "fmnist", "--root", str(tmp_path), "--angles"]) == 0
    out = capsys.readouterr().out
    assert "cut at the widest gap: {0,2,4,6,8}  {1,3,5,7,9}" in out
    assert "cut into 3, at " in out
    assert "published: {0,1,3}  {2,4,6,8}  {5,7,9}" in out


def test_samples_are_placed_by_umap_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Umap:
        def __init__(self, **settings: object) -> None:
            assert settings["random_state"] == 0

        def fit_transform(self, x: np.ndarray) -> np.ndarray:
            return x[:, :2]

    digits = datasets.load("digits")
    monkeypatch.setitem(sys.modules, "umap", None)
    points, owners, how = embedded(digits, angles(digits))
    assert (points.shape, how) == ((len(owners), 2), "two principal components")
    assert set(owners.tolist()) == set(range(10))
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    assert embedded(digits, angles(digits))[2] == "UMAP"
