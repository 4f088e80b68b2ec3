"""Datasets by name: the embedded one, users' files, torchvision's formats, and the errors of broken files."""

import hashlib
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision

from fedsim.errors import ConfigError
from fedsim.partitions import DATASETS, datasets
from fedsim.partitions.catalogue import Composite, Single

RNG = np.random.default_rng(0)


def arrays(shape: tuple[int, ...] = (8, 8), n: int = 40, classes: int = 4) -> dict[str, Any]:
    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        return RNG.integers(0, 256, (n, *shape), dtype=np.uint8), (np.arange(n) % classes).astype(np.uint8)

    (x_train, y_train), (x_test, y_test) = part(n), part(n // 2)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def write(root: Path, name: str, **given: Any) -> Path:
    np.savez_compressed(root / f"{name}.npz", **given)
    return root / f"{name}.npz"


def test_digits_need_no_file() -> None:
    data = datasets.load("digits")
    assert (len(data.labels.train), len(data.labels.test), data.shape) == (1442, 355, (1, 8, 8))
    assert np.bincount(data.labels.test).min() >= 34  # every class has its fifth
    x = data.samples(np.arange(1442))
    assert (x.mean(), x.std()) == pytest.approx((0, 1), abs=1e-3)


@pytest.mark.parametrize("name", [n for n in DATASETS if n != "digits"])
def test_a_dataset_that_is_not_there_names_the_file_and_the_source(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there: every download fails at once
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr("urllib.request._opener", None)  # an opener keeps the proxies it was made with
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # which would try again for half a minute
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    first = datasets.find(name)
    missing = first.parts[0] if isinstance(first, Composite) else name
    with pytest.raises(ConfigError) as refused:
        datasets.load(name, str(tmp_path))
    assert f"{tmp_path / missing}.npz" in str(refused.value)
    known = datasets.find(missing)
    assert isinstance(known, Single)
    assert (known.source or f"fedsim data {missing}") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_of_the_users_needs_no_code(tmp_path: Path) -> None:
    given = arrays((5, 7, 3))
    write(tmp_path, "wards", **given)
    data = datasets.load("wards", str(tmp_path))
    assert (data.classes, data.shape) == (4, (3, 5, 7))
    x = data.samples(np.array([3, 41]), normalized=False)
    assert np.array_equal(x[0], given["x_train"][3].transpose(2, 0, 1))
    assert np.array_equal(x[1], given["x_test"][1].transpose(2, 0, 1))
    assert data.samples(np.arange(40)).mean() == pytest.approx(0, abs=1e-5)


def test_silos_may_agree_on_classes_and_normalization(tmp_path: Path) -> None:
    given = arrays(classes=4)
    write(tmp_path, "agreed", **given, classes=9, mean=[0.5], std=[0.25])
    data = datasets.load("agreed", str(tmp_path))
    assert data.classes == 9
    assert data.samples(np.array([0]))[0, 0] == pytest.approx((given["x_train"][0] / 255 - 0.5) / 0.25, abs=1e-5)


def test_a_file_may_name_its_classes(tmp_path: Path) -> None:
    write(tmp_path, "named", **arrays(classes=2), classes=["cat", "dog", "horse"])
    assert datasets.load("named", str(tmp_path)).classes == 3


def test_a_file_wins_over_torchvision_and_a_new_file_over_an_old_one(tmp_path: Path) -> None:
    first = arrays((28, 28), n=40, classes=10)
    write(tmp_path, "mnist", **first)
    assert len(datasets.load("mnist", str(tmp_path)).labels.train) == 40
    write(tmp_path, "mnist", **arrays((28, 28), n=60, classes=10))
    assert len(datasets.load("mnist", str(tmp_path)).labels.train) == 60


def test_the_published_constants_normalize_a_known_dataset(tmp_path: Path) -> None:
    given = arrays((32, 32, 3), classes=10)
    write(tmp_path, "cifar10", **given)
    x = datasets.load("cifar10", str(tmp_path)).samples(np.array([0]))
    pixel = given["x_train"][0, 0, 0] / 255
    assert x[0, :, 0, 0] == pytest.approx((pixel - (0.4914, 0.4822, 0.4465)) / (0.247, 0.243, 0.261), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.zeros(39)}, "x_train holds 40 samples but y_train 39"),
        ({"x_train": np.full((40, 8, 8), np.nan)}, "x_train holds NaN or infinity, first in sample 0"),
        ({"y_train": np.full(40, -1)}, "y_train holds the label -1; labels run from 0"),
        ({"y_train": np.full(40, 0.5)}, "one whole number per sample"),
        ({"y_train": np.full(40, np.nan)}, "one whole number per sample"),
        ({"x_test": np.zeros((20, 9, 9), np.uint8)}, "x_test is uint8 of shape .1, 9, 9."),
        ({"x_train": np.array(["a"] * 40)}, "must be numbers"),
        ({"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": np.zeros(0)}, "x_train is empty"),
        ({"user_train": np.arange(40)}, "only one of user_train and user_test"),
        ({"user_train": np.arange(4), "user_test": np.arange(2)}, "one entry per sample"),
        ({"classes": np.array(3)}, "y_train holds the label 3; labels run from 0 to 2"),
        ({"classes": np.array([3, 4])}, "classes must be one number"),
        ({"mean": np.array([0.5])}, "only one of mean and std"),
        ({"mean": np.array([0.5]), "std": np.array([0.0])}, "std above 0"),
        ({"mean": np.array([0.5, 0.5]), "std": np.array([1.0, 1.0])}, "2 channels, not 1"),
        ({"x_train": np.zeros(40)}, "must be numbers of shape N x F"),
        (
            {"objective": "regression", "y_train": np.full(40, np.inf)},
            "y_train must be finite numbers for objective=reg",
        ),
        ({"objective": "regression", "y_train": np.zeros((40, 2))}, r"y_train is float32 of shape \(2,\) but y_test"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    given = {key: value for key, value in {**arrays(), **change}.items() if value is not None}
    file = write(tmp_path, "broken", **given)
    with pytest.raises(ConfigError, match=says) as refused:
        datasets.load("broken", str(tmp_path))
    assert str(file) in str(refused.value)


def test_labels_beyond_a_known_datasets_classes(tmp_path: Path) -> None:
    write(tmp_path, "usps", **arrays((16, 16), classes=11))
    with pytest.raises(ConfigError, match="holds the label 10; labels run from 0 to 9"):
        datasets.load("usps", str(tmp_path))


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.95])
def test_a_truncated_file(tmp_path: Path, kept: float) -> None:
    file = write(tmp_path, "cut", **arrays())
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ConfigError, match="cannot be read as an npz file"):
        datasets.load("cut", str(tmp_path))


def test_an_unknown_name_lists_the_known_ones_and_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'cifar10'\? Choices: a file .*cifar1O.npz, .*cifar10, .*usps"):
        datasets.find("cifar1O", str(tmp_path))
    with pytest.raises(ConfigError, match="unknown dataset"):
        datasets.find("../secret", str(tmp_path))


def test_datasets_side_by_side_are_padded_and_repeated(tmp_path: Path) -> None:
    small, large = arrays((4, 4)), arrays((8, 8, 3))
    write(tmp_path, "small", **small)
    write(tmp_path, "large", **large)
    data = datasets.load("small+large", str(tmp_path))
    assert (data.shape, data.classes, len(data.labels.train)) == ((3, 8, 8), 4, 80)
    x = data.samples(np.array([41, 0, 85, 119]), normalized=False)
    assert np.array_equal(x[0], large["x_train"][1].transpose(2, 0, 1))
    assert np.array_equal(x[1, :, 2:6, 2:6], np.stack([small["x_train"][0]] * 3))
    assert x[1].sum() == 3.0 * small["x_train"][0].sum()
    assert np.array_equal(x[2, 0, 2:6, 2:6], small["x_test"][5])
    assert np.array_equal(x[3], large["x_test"][19].transpose(2, 0, 1))
    black = data.samples(np.array([0]))[0, :, 0, 0]
    assert black == pytest.approx(
        -np.mean(small["x_train"]) / np.std(small["x_train"]), rel=1e-3
    )  # padded, then normalized


def test_mix4_keeps_labels_apart(tmp_path: Path) -> None:
    for name, shape in (("usps", (16, 16)), ("cifar10", (32, 32, 3)), ("svhn", (32, 32, 3)), ("fmnist", (28, 28))):
        write(tmp_path, name, **arrays(shape, classes=10))
    data = datasets.load("mix4", str(tmp_path))
    assert (data.classes, data.shape) == (40, (3, 32, 32))
    assert [sorted({int(label) // 10 for label in data.labels.train[i : i + 40]}) for i in (0, 40, 80, 120)] == [
        [0],
        [1],
        [2],
        [3],
    ]


def test_a_mixture_inside_a_mixture(tmp_path: Path) -> None:
    write(tmp_path, "usps", **arrays((16, 16), classes=10))
    with pytest.raises(ConfigError, match="'mix4' is itself made of usps, cifar10, svhn, fmnist"):
        datasets.load("usps+mix4", str(tmp_path))


def test_shared_labels_need_equally_many_classes(tmp_path: Path) -> None:
    write(tmp_path, "four", **arrays(classes=4))
    write(tmp_path, "five", **arrays(classes=5))
    with pytest.raises(ConfigError, match="equally many classes, not four 4, five 5"):
        datasets.load("four+five", str(tmp_path))


def test_torchvisions_emnist_comes_out_upright(tmp_path: Path) -> None:
    """The original files hold images mirrored along the diagonal, as idx files."""
    given = arrays((28, 28), classes=47)
    raw = tmp_path / "torchvision" / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "test"):
        x, y = given[f"x_{part}"], given[f"y_{part}"]
        (raw / f"emnist-balanced-{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, *x.shape) + x.tobytes()
        )
        (raw / f"emnist-balanced-{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(y)) + y.tobytes())
    data = datasets.load("emnist-balanced", str(tmp_path))
    assert data.classes == 47
    assert np.array_equal(data.samples(np.array([5]), normalized=False)[0, 0], given["x_train"][5].T)


def test_torchvisions_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = arrays((3, 32, 32), classes=100)
    folder = tmp_path / "torchvision" / "cifar-100-python"
    folder.mkdir(parents=True)
    sums = {}
    for part in ("train", "test"):
        batch = {"data": given[f"x_{part}"].reshape(-1, 3072), "fine_labels": given[f"y_{part}"].tolist()}
        sums[part] = _store(folder / part, pickle.dumps(batch))
    names = _store(folder / "meta", pickle.dumps({"fine_label_names": [str(i) for i in range(100)]}))
    kind = torchvision.datasets.CIFAR100  # the real reader, told the checksums of these small files
    monkeypatch.setattr(kind, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(kind, "test_list", [["test", sums["test"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": names})
    data = datasets.load("cifar100", str(tmp_path))
    assert (data.classes, data.shape, len(data.labels.test)) == (100, (3, 32, 32), 20)
    assert np.array_equal(data.samples(np.array([7]), normalized=False)[0], given["x_train"][7])


def test_torchvisions_stl10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = arrays((3, 96, 96), n=12, classes=10)
    folder = tmp_path / "torchvision" / "stl10_binary"
    folder.mkdir(parents=True)
    sums = {}
    for part in ("train", "test"):  # columns first, and labels from 1
        sums[f"{part}_X.bin"] = _store(folder / f"{part}_X.bin", given[f"x_{part}"].swapaxes(2, 3).tobytes())
        sums[f"{part}_y.bin"] = _store(folder / f"{part}_y.bin", (given[f"y_{part}"] + 1).tobytes())
    _store(folder / "class_names.txt", "\n".join(map(str, range(10))).encode())
    kind = torchvision.datasets.STL10
    monkeypatch.setattr(kind, "train_list", [[n, sums[n]] for n in ("train_X.bin", "train_y.bin")])
    monkeypatch.setattr(kind, "test_list", [[n, sums[n]] for n in ("test_X.bin", "test_y.bin")])
    data = datasets.load("stl10", str(tmp_path))
    assert data.shape == (3, 96, 96)
    assert np.array_equal(data.labels.train, given["y_train"])
    assert np.array_equal(data.samples(np.array([1]), normalized=False)[0], given["x_train"][1])


def _store(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    return hashlib.md5(content).hexdigest()
