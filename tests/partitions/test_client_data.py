"""What a client holds: the right samples, quickly, from a cache that any number of processes may fill at once."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data, load_dataset, shares

Small = Callable[..., RunConfig]


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout


def test_a_client_gets_its_own_samples(small: Small) -> None:
    config = small()
    dataset, share = load_dataset(config), shares(config)[2]
    data = client_data(config, 2)
    assert np.array_equal(data.x_train, dataset.samples(share.train))
    assert np.array_equal(data.y_test, dataset.labels.pooled[share.test])
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    assert data.classes == 10


def test_raw_inputs_are_the_pixels_as_stored(tmp_path: Path) -> None:
    x, y = np.arange(20 * 9).reshape(20, 3, 3).astype(np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "pixels.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    keys = ["dataset=pixels", f"data-root={tmp_path}", "clients=2"]
    raw, normalized = (client_data(configs.read(None, [*keys, f"inputs={i}"]), 0) for i in ("raw", "normalized"))
    share = shares(configs.read(None, keys))[0]
    assert np.array_equal(raw.x_train[:, 0], x[share.train])
    assert raw.x_train.dtype == np.float32
    assert abs(normalized.x_train.mean()) < 1 < raw.x_train.mean()
    assert np.array_equal(raw.y_train, normalized.y_train)


@pytest.mark.parametrize("validation", ["validation=0", "validation=0.3"])
def test_classes_are_dealt_one_after_the_other(validation: str, small: Small) -> None:
    """Which is what batches in order then read, also when a part is held back."""
    config = small("partition=classes", "partition.classes=4", "batches=in-order", validation)
    labels = client_data(config, 1).y_train
    assert np.count_nonzero(np.diff(labels)) == 3


def test_a_client_that_does_not_exist(small: Small) -> None:
    with pytest.raises(ConfigError, match="client 4 does not exist: the run has clients 0 to 3"):
        client_data(small(), 4)


def test_rotated_clients_see_rotated_images(small: Small) -> None:
    config = small("partition=feature-shift")
    dataset, share = load_dataset(config), shares(config)[1]
    data = client_data(config, 1)
    upright = dataset.samples(share.train[:1])[0, 0]
    assert share.transform == "rotate-90"
    assert np.array_equal(data.x_train[0, 0], np.rot90(upright))


def test_oblong_images_have_no_quarter_turns(tmp_path: Path) -> None:
    x, y = np.zeros((20, 4, 6), np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "oblong.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    base = ["dataset=oblong", f"data-root={tmp_path}", "partition=feature-shift", "clients=4"]
    with pytest.raises(ConfigError, match=r"images of 4x6 have no quarter turns; use partition\.rotations=2"):
        client_data(configs.read(None, base), 0)
    turned = client_data(configs.read(None, [*base, "partition.rotations=2"]), 3)
    assert turned.x_train.shape[1:] == (1, 4, 6)


def test_a_silos_own_file_runs_without_code(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (30, 5, 5), dtype=np.uint8), np.arange(30) % 3
    np.savez(tmp_path / "clinic.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = client_data(configs.read(None, ["dataset=clinic", f"data-root={tmp_path}", "clients=2"]), 1)
    assert (data.x_train.shape, data.classes) == ((15, 1, 5, 5), 3)


def test_seed_partition_parameters_and_clients_each_make_another_split(small: Small) -> None:
    base = small()
    first = shares(base)[0].train
    for change in ("seed=1", "partition.alpha=0.9", "clients=5", "partition=iid"):
        assert not np.array_equal(first, shares(small(change))[0].train), change


def test_the_cache_gives_what_was_drawn(fresh_cache: Path, small: Small) -> None:
    drawn = shares(small("partition=feature-shift"))
    again = shares(small("partition=feature-shift"))
    rotations = ["", "rotate-90", "rotate-180", "rotate-270"]
    assert [s.transform for s in drawn] == [s.transform for s in again] == rotations
    assert all(np.array_equal(a.train, b.train) for a, b in zip(drawn, again, strict=True))


DRAW = """
import hashlib, sys
from fedsim.config import read
from fedsim.partitions.client_data import shares
split = shares(read(None, ["clients=20", "partition=dirichlet", "partition.min-size=5"]))
print(hashlib.sha256(b"".join(s.train.tobytes() + s.test.tobytes() for s in split)).hexdigest())
"""


def test_many_processes_may_start_at_once(fresh_cache: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", DRAW], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {process.communicate(timeout=120)[0] for process in started}
    assert len(found) == 1
    assert found != {""}
    assert not list(fresh_cache.rglob("*.unfinished"))


def test_a_process_that_died_leaves_nothing_in_the_way(fresh_cache: Path, small: Small) -> None:
    expected = shares(small())[0].train
    [finished] = (fresh_cache / "splits").glob("dirichlet-*")
    finished.rename(finished.with_name(f".{finished.name}.unfinished"))
    assert np.array_equal(shares(small())[0].train, expected)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Small) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDSIM_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot write .*It belongs to the cache .* set FEDSIM_CACHE"):
        shares(small())


HEAVY = ("torchvision", "sklearn", "scipy", "matplotlib", "flwr_datasets", "datasets", "pandas")
LOAD = f"""
import json, sys
from fedsim.config import read
from fedsim.partitions.client_data import client_data
before = set(sys.modules)
client_data(read(None, ["partition=sc-niid"]), 0)
print(json.dumps([name for name in {HEAVY!r} if name in set(sys.modules) - before]))
"""


def test_a_client_with_a_prepared_copy_imports_nothing_heavy(fresh_cache: Path) -> None:
    run(LOAD)
    assert json.loads(run(LOAD)) == []


def test_a_split_that_fails_leaves_nothing_behind(fresh_cache: Path, small: Small) -> None:
    with pytest.raises(ConfigError, match="more than the 10 classes"):
        shares(small("partition=pathological", "partition.classes=11"))
    assert not list((fresh_cache / "splits").glob("*pathological*/"))
