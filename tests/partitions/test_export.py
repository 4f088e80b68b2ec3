"""Clients written as files: what a client reads from its file is what the simulated client holds, bit for bit."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions import PARTITIONS
from fedsim.partitions.client_data import client_data
from fedsim.partitions.export import export

Small = Callable[..., RunConfig]
RNG = np.random.default_rng(0)


def quietly(done: int, total: int) -> None:
    """A progress callback that shows nothing."""


def assert_same_clients(config: RunConfig, out: Path) -> None:
    export(config, out, quietly)
    for client in range(config.clients):
        own = config.replace(dataset=str(out / f"client-{client:04d}.npz"), partition="own", data_root="", sections={})
        read, held = client_data(own, client), client_data(config, client)
        for name in ("x_train", "y_train", "x_test", "y_test"):
            ours, theirs = getattr(read, name), getattr(held, name)
            assert ours.dtype == theirs.dtype, name
            assert np.array_equal(ours, theirs), name
        assert read.classes == held.classes


@pytest.mark.parametrize("partition", sorted(set(PARTITIONS) - {"mix4", "by-domain", "by-user", "own"}))
def test_every_partition_of_digits(partition: str, small: Small, tmp_path: Path) -> None:
    assert_same_clients(small(f"partition={partition}", "clients=10"), tmp_path / "out")


def write(root: Path, name: str, shape: tuple[int, ...], **further: object) -> None:
    x, y = RNG.integers(0, 256, (200, *shape), dtype=np.uint8), np.arange(200) % 4
    np.savez(root / f"{name}.npz", x_train=x[:150], y_train=y[:150], x_test=x[150:], y_test=y[150:], **further)


@pytest.mark.parametrize("shape", [(6,), (5, 5), (5, 7, 3), (6, 5, 2)])
def test_every_shape_keeps_its_convention(shape: tuple[int, ...], tmp_path: Path) -> None:
    write(tmp_path, "ward", shape)
    config = configs.read(None, ["dataset=ward", f"data-root={tmp_path}", "clients=3"])
    assert_same_clients(config, tmp_path / "out")
    with np.load(tmp_path / "out" / "client-0000.npz") as file:
        assert file["x_train"].shape[1:] == shape
        assert file["x_train"].dtype == np.uint8


def test_users_and_floats(tmp_path: Path) -> None:
    x, y = RNG.normal(3, 2, (60, 6)), np.arange(60) % 3
    parts = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    users = {"user_train": np.arange(40) % 4, "user_test": np.arange(20) % 4}
    np.savez(tmp_path / "blood.npz", **parts, **users)
    config = configs.read(None, ["dataset=blood", f"data-root={tmp_path}", "clients=4", "partition=by-user"])
    assert_same_clients(config, tmp_path / "out")


@pytest.mark.parametrize("settings", [["partition=feature-shift", "partition.by=source"], ["partition=iid"]])
def test_datasets_side_by_side_keep_their_normalizations(settings: list[str], tmp_path: Path) -> None:
    write(tmp_path, "grey", (4, 4))
    write(tmp_path, "color", (8, 8, 3))
    config = configs.read(None, ["dataset=grey+color", f"data-root={tmp_path}", "clients=4", *settings])
    assert_same_clients(config, tmp_path / "out")


def test_what_is_held_back_for_validation_is_the_same(small: Small, tmp_path: Path) -> None:
    assert_same_clients(small("validation=0.25"), tmp_path / "out")


def test_the_list_of_silos_tells_what_each_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    settings = ["partition=dirichlet", "partition.alpha=0.3", "clients=3", "seed=7"]
    assert main(["data", "split", *(w for s in settings for w in ("--set", s)), "--out", str(out)]) == 0
    assert "3 silos of digits (partition=dirichlet)" in capsys.readouterr().out
    about = json.loads((out / "silos.json").read_text())
    assert (about["partition"], about["params"]["alpha"], about["seed"]) == ("dirichlet", 0.3, 7)
    assert sorted(p.name for p in out.glob("*.npz")) == [s["file"] for s in about["silos"]]
    for told in about["silos"]:
        with np.load(out / told["file"]) as file:
            assert told["train"] == len(file["x_train"]) == sum(told["labels_train"])
            assert told["labels_test"] == np.bincount(file["y_test"], minlength=10).tolist()
    assert "clients=3 partition=own seed=7" in (out / "README.txt").read_text()


def test_files_of_another_split_are_not_mixed_in(small: Small, tmp_path: Path) -> None:
    export(small(), tmp_path / "out", quietly)
    with pytest.raises(ConfigError, match="out is not empty"):
        export(small("clients=2"), tmp_path / "out", quietly)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["split"], "needs --out DIR"),
        (["split", "--root", "x", "--out", "y"], "data-root with --set"),
        (["digits", "--set", "clients=3"], "belong to `fedsim data split`"),
    ],
)
def test_options_of_the_other_kind_are_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *arguments]) == 2
    assert says in capsys.readouterr().err
