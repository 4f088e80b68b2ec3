"""Samples that are no images: feature vectors, windows of signals, token ids; and targets that are no classes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim import config as configs
from fedsim import registry
from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions import datasets, transforms
from fedsim.partitions.client_data import client_data, shares
from fedsim.partitions.export import export
from fedsim.partitions.summary import summarize

RNG = np.random.default_rng(0)
TRAIN, TEST = 60, 24
SHAPES = {
    "vectors": RNG.normal(3, 2, (TRAIN + TEST, 6)),
    "windows": RNG.normal(0, 1, (TRAIN + TEST, 20, 3)).astype(np.float32),
    "tokens": RNG.integers(0, 40_000, (TRAIN + TEST, 16), dtype=np.int32),
    "characters": RNG.integers(0, 90, (TRAIN + TEST, 12), dtype=np.uint8),
    "videos": RNG.normal(0, 1, (TRAIN + TEST, 3, 2, 4, 4)),
}
Y = np.arange(TRAIN + TEST) % 3


def write(root: Path, name: str, x: np.ndarray, y: np.ndarray = Y, **further: Any) -> None:
    parts = {"x_train": x[:TRAIN], "y_train": y[:TRAIN], "x_test": x[TRAIN:], "y_test": y[TRAIN:]}
    np.savez(root / f"{name}.npz", **parts, **further)


def read(root: Path, name: str, *settings: str) -> RunConfig:
    return configs.read(None, [f"dataset={name}", f"data-root={root}", "clients=3", *settings])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, x in SHAPES.items():
        write(tmp_path, name, x)
    write(tmp_path, "targets", SHAPES["vectors"], RNG.normal(size=TRAIN + TEST), objective="regression")
    return tmp_path


@pytest.mark.parametrize("validation", ["validation=0", "validation=0.25"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_client_holds_its_samples_as_they_are(root: Path, name: str, partition: str, validation: str) -> None:
    given = SHAPES[name]
    config = read(
        root, name, f"partition={partition}", "partition.min-size=3" if partition == "dirichlet" else "seed=0"
    )
    share = shares(config)[1]
    data = client_data(config.replace(validation=float(validation.split("=")[1])), 1)
    assert data.x_train.shape[1:] == given.shape[1:]
    assert data.x_train.dtype == data.x_test.dtype == (np.float32 if given.dtype.kind == "f" else np.int64)
    assert (data.classes, data.objective) == (3, "classification")
    kept, held_out = given.astype(data.x_train.dtype)[share.train], len(share.train) // 4
    if validation == "validation=0":
        assert np.array_equal(data.x_train, kept)
        assert np.array_equal(data.y_test, Y[share.test])
    else:
        assert len(data.x_test) == pytest.approx(held_out, abs=1)
        both = np.concatenate([data.x_train, data.x_test])
        assert sorted(x.tobytes() for x in both) == sorted(x.tobytes() for x in kept)


@pytest.mark.parametrize("name", SHAPES)
def test_files_of_clients_hold_the_same(root: Path, name: str) -> None:
    config = read(root, name)
    export(config, root / "out", lambda done, total: None)
    with np.load(root / "out" / "client-0000.npz") as file:
        stored = SHAPES[name].dtype
        assert file["x_train"].dtype == (np.float32 if stored.kind == "f" else stored)
        assert "mean" not in file
    for client in range(3):
        own = config.replace(dataset=str(root / "out" / f"client-{client:04d}.npz"), partition="own")
        found, held = client_data(own, client), client_data(config, client)
        assert found.x_train.dtype == held.x_train.dtype
        assert np.array_equal(found.x_train, held.x_train)
        assert np.array_equal(found.y_test, held.y_test)
        assert (found.classes, found.objective) == (held.classes, held.objective)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vectors", "samples 6 (float32)"),
        ("windows", "samples 20x3 (float32)"),
        ("tokens", "samples 16 (int64)"),
        ("videos", "samples 3x2x4x4 (float32)"),
    ],
)
def test_the_commands(root: Path, name: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", name, "--root", str(root)]) == 0
    assert capsys.readouterr().out == f"{name}: 60 training and 24 test samples, 3 classes, {says}\n"
    settings = ["--set", f"dataset={name}", "--set", f"data-root={root}", "--set", "clients=3"]
    assert main(["partition", *settings, "--set", "partition=pathological", "--plot", str(root / "plot.png")]) == 0
    assert f"{name}, pathological, 3 clients" in capsys.readouterr().out
    assert main(["data", "split", *settings, "--out", str(root / "silos")]) == 0
    assert len(list((root / "silos").glob("*.npz"))) == 3


def test_distances_see_what_differs_between_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.1, (TRAIN + TEST, 5)) + np.diag([9.0, 6, 3, 0, 0])[Y]
    write(tmp_path, "separate", x)
    alike, apart = (summarize(read(tmp_path, "separate", f"partition={p}")) for p in ("iid", "pathological"))
    for key in alike.distances:
        assert alike.mean_distance(key) < apart.mean_distance(key), key


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (np.zeros((84, 5, 7), np.uint8), (1, 5, 7)),
        (np.zeros((84, 5, 7), np.int64), (5, 7)),
        (np.zeros((84, 5, 7)), (5, 7)),
        (np.zeros((84, 5, 7, 3)), (3, 5, 7)),
        (np.zeros((84, 3, 5, 7), np.int16), (3, 5, 7)),
        (np.zeros((84, 5), np.uint8), (5,)),
    ],
)
def test_which_arrays_are_images(tmp_path: Path, x: np.ndarray, shape: tuple[int, ...]) -> None:
    write(tmp_path, "any", x)
    dataset = datasets.load("any", str(tmp_path))
    assert dataset.shape == shape
    assert dataset.parts[0].is_images == (len(shape) == 3)


def test_three_dimensions_with_mean_and_std_are_grey_images(tmp_path: Path) -> None:
    write(tmp_path, "scans", RNG.normal(size=(84, 4, 5)), mean=[0.5], std=[2.0])
    assert datasets.load("scans", str(tmp_path)).shape == (1, 4, 5)
    write(tmp_path, "rows", SHAPES["vectors"], mean=[0.5], std=[2.0])
    with pytest.raises(ConfigError, match="rows has 1 channels, not 6"):
        datasets.load("rows", str(tmp_path))


@pytest.mark.parametrize("name", ["vectors", "tokens", "videos"])
def test_only_images_can_be_rotated(root: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="only images can be rotated, not samples of shape"):
        shares(read(root, name, "partition=feature-shift"))


def test_transforms_by_name() -> None:
    x = np.arange(8.0).reshape(1, 2, 2, 2)
    assert transforms.apply("", x) is x
    assert np.array_equal(transforms.apply("rotate-90", x)[0, 0], [[1, 3], [0, 2]])
    with pytest.raises(ConfigError, match=r"Did you mean 'rotate-90'\? Choices: rotate-180, rotate-270, rotate-90"):
        transforms.apply("rotate-9", x)


def test_datasets_side_by_side_need_one_shape_unless_they_are_images(root: Path) -> None:
    write(root, "more", SHAPES["vectors"] + 1)
    both = datasets.load("vectors+more", str(root))
    x = both.samples(np.array([0, 60, 2 * TRAIN, 2 * TRAIN + TEST]))
    given = SHAPES["vectors"]
    assert x == pytest.approx(np.stack([given[0], given[0] + 1, given[TRAIN], given[TRAIN] + 1]), rel=1e-6)
    with pytest.raises(
        ConfigError, match=r"one shape: vectors float32 \(6,\) for classification, tokens int64 \(16,\)"
    ):
        datasets.load("vectors+tokens", str(root))
    with pytest.raises(ConfigError, match=r"one objective .* targets float32 \(6,\) for regression"):
        datasets.load("vectors+targets", str(root))


@pytest.mark.parametrize("partition", ["iid", "quantity", "by-user", "own"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_real_valued_targets_are_split_without_labels(tmp_path: Path, partition: str, shape: tuple[int, ...]) -> None:
    x, y = SHAPES["vectors"], RNG.normal(size=(TRAIN + TEST, *shape))
    users = {"user_train": np.arange(TRAIN) % 7, "user_test": np.arange(TEST) % 7}
    write(tmp_path, "prices", x, y, objective="regression", **users)
    config = read(tmp_path, "prices", f"partition={partition}")
    rows = {row.astype(np.float32).tobytes(): target for row, target in zip(x, y, strict=True)}
    for client in range(3):
        data = client_data(config, client)
        assert (data.classes, data.objective, data.y_train.dtype) == (0, "regression", np.float32)
        for samples, targets in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
            expected = np.array([rows[row.tobytes()] for row in samples])
            assert targets == pytest.approx(expected, rel=1e-6)
            assert len(targets)
    if partition in ("iid", "quantity"):
        assert sum(len(share.train) for share in shares(config)) == TRAIN


@pytest.mark.parametrize("partition", ["dirichlet", "shards", "classes", "practical", "sc-niid", "feature-shift"])
def test_real_valued_targets_cannot_be_split_by_class(root: Path, partition: str) -> None:
    possible = "by-domain, by-user, iid, own, quantity"
    says = f"partition={partition} splits by class, .*regression. have no class labels; use {possible}$"
    with pytest.raises(ConfigError, match=says):
        client_data(read(root, "targets", f"partition={partition}"), 0)


def test_the_description_of_a_dataset_names_its_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.providers("dataset"), "prices", "tests.partitions.known:PRICES")
    write(tmp_path, "prices", SHAPES["vectors"], RNG.normal(size=TRAIN + TEST))
    assert client_data(read(tmp_path, "prices"), 0).objective == "regression"
    write(tmp_path, "unnamed", SHAPES["vectors"], RNG.normal(size=TRAIN + TEST))
    with pytest.raises(ConfigError, match=r"one whole number per sample, .*; real numbers need objective=regression"):
        client_data(read(tmp_path, "unnamed"), 0)


def test_a_target_for_every_token(tmp_path: Path) -> None:
    x = SHAPES["characters"]
    write(tmp_path, "text", x, np.roll(x, -1, axis=1), objective="next-token", classes=90)
    config = read(tmp_path, "text")
    data, share = client_data(config, 2), shares(config)[2]
    assert np.array_equal(data.y_train, np.roll(x, -1, axis=1)[share.train])
    assert (data.y_train.dtype, data.classes, data.objective) == (np.int64, 90, "next-token")
    with pytest.raises(ConfigError, match="have no class labels"):
        shares(read(tmp_path, "text", "partition=dirichlet"))


def test_the_commands_without_classes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "targets", "--root", str(root)]) == 0
    assert "24 test samples, real-valued targets (regression), samples 6 (float32)" in capsys.readouterr().out
    settings = ["--set", "dataset=targets", "--set", f"data-root={root}", "--set", "clients=3"]
    assert main(["partition", *settings, "--plot", str(root / "plot.png")]) == 0
    shown = capsys.readouterr().out
    assert "targets, iid, 3 clients" in shown
    assert "most frequent labels" not in shown
    assert main(["partition", *settings, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["clients"]
    assert [(c["train"], c["test"], c["counts"]) for c in listed] == [(20, 8, [])] * 3
    assert main(["data", "split", *settings, "--out", str(root / "silos")]) == 0
    about = json.loads((root / "silos" / "silos.json").read_text())
    assert about["objective"] == "regression"
    assert "labels_train" not in about["silos"][0]
    own = read(root, "x").replace(dataset=str(root / "silos" / "client-0001.npz"), partition="own")
    assert client_data(own, 1).objective == "regression"
