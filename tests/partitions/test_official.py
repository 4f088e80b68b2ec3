"""Datasets from small files in the formats in which their authors publish them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
from PIL import Image
from scipy.io import savemat

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import datasets
from fedsim.partitions.catalogue import SHAKESPEARE
from fedsim.partitions.official.sensors import HAR_SIGNALS, PAMAP2_CHANNELS, STEP, WINDOW

RNG = np.random.default_rng(0)


def write(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def draw(file: Path, pixels: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file)


def stored(data: datasets.Dataset) -> np.ndarray:
    return data.samples(np.arange(len(data.targets)), normalized=False)


def users(data: datasets.Dataset) -> list[str]:
    assert data.labels.users is not None
    return [str(user) for user in data.labels.users]


def test_news(tmp_path: Path) -> None:
    folder = tmp_path / "ag_news_csv"
    write(folder / "train.csv", '"4","Fast, chips","a ""new"" one"\n"1","War","end"\n')
    write(folder / "test.csv", '"2","Goal","chips"\n')
    data = datasets.load("ag-news", str(tmp_path))
    assert (data.classes, data.targets.tolist()) == (4, [3, 0, 1])
    assert np.count_nonzero(stored(data)[0]) == 8  # fast , chips a " new " one
    assert datasets.load("ag-news", str(tmp_path), DataParams(length=3)).shape == (3,)


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ('"5","a","b"\n', "column 'class' holds '5', which is none of the classes: 1, 2, 3, 4"),
        ("title,text\n", r"train.csv cannot be read: CSV parse error.*Expected 3 columns, got 2"),
    ],
)
def test_broken_news(tmp_path: Path, train: str, says: str) -> None:
    write(tmp_path / "ag_news_csv" / "train.csv", train)
    write(tmp_path / "ag_news_csv" / "test.csv", '"1","a","b"\n')
    with pytest.raises(ConfigError, match=says):
        datasets.load("ag-news", str(tmp_path))


def leaf(folder: Path, **people: tuple[list[Any], list[Any]]) -> None:
    told = {user: {"x": x, "y": y} for user, (x, y) in people.items()}
    sizes = [len(x) for x, _ in people.values()]
    write(folder / "data.json", json.dumps({"users": list(people), "num_samples": sizes, "user_data": told}))


def test_shakespeare_of_leaf(tmp_path: Path) -> None:
    line = "a~" + "b" * 78
    leaf(tmp_path / "shakespeare" / "train", HAMLET=([line, line], ["c", "\n"]), OPHELIA=([line], [" "]))
    leaf(tmp_path / "shakespeare" / "test", HAMLET=([line], ["}"]))
    data = datasets.load("shakespeare", str(tmp_path))
    letters = SHAKESPEARE.alphabet
    assert (len(letters), data.vocabulary, data.classes, data.shape) == (80, 82, 80, (80,))
    assert data.targets.tolist() == [letters.index("c"), 0, 1, 79]
    assert stored(data)[0, :3].tolist() == [letters.index("a") + 2, 1, letters.index("b") + 2]  # 1: not in the alphabet
    assert users(data) == ["HAMLET", "HAMLET", "OPHELIA", "HAMLET"]
    leaf(tmp_path / "shakespeare" / "train", HAMLET=([line], ["~"]))
    with pytest.raises(ConfigError, match="HAMLET has the next character '~', none of"):
        datasets.load("shakespeare", str(tmp_path), DataParams(length=80, vocabulary=100))


def test_femnist_of_leaf_is_bright_on_black(tmp_path: Path) -> None:
    paper = np.ones(784)
    paper[30] = 0.2
    leaf(tmp_path / "femnist" / "train", f01=([paper.tolist()], [61]), f02=([paper.tolist()] * 2, [0, 1]))
    leaf(tmp_path / "femnist" / "test", f02=([paper.tolist()], [5]))
    data = datasets.load("femnist", str(tmp_path))
    assert (data.classes, data.shape, data.targets.tolist()) == (62, (1, 28, 28), [61, 0, 1, 5])
    assert stored(data)[0, 0, 1, :4].tolist() == [0, 0, 204, 0]
    assert users(data) == ["f01", "f02", "f02", "f02"]
    write(tmp_path / "femnist" / "train" / "more.json", '{"users": ["f03"]}')
    with pytest.raises(ConfigError, match=r"more.json cannot be read as published: it lacks 'user_data'"):
        datasets.load("femnist", str(tmp_path), DataParams(length=7))


def test_amazon_reviews(tmp_path: Path) -> None:
    for domain, word in (("books", "plot"), ("dvd", "film")):
        folder = tmp_path / "processed_acl" / domain
        write(folder / "positive.review", f"good:3 {word}:1 a_good:1 #label#:positive\n")
        write(folder / "negative.review", f"bad:2 {word}:300 #label#:negative\n")
        write(folder / "unlabeled.review", "bad:1 unseen:4 #label#:negative\n")
    data = datasets.load("amazon-reviews", str(tmp_path))
    assert (data.classes, data.vocabulary, data.targets.tolist()) == (2, 0, [1, 0, 1, 0, 0, 0])
    # film and plot 301 times, good 6, bad 4, a_good 2; counts end at 255
    x = stored(data)
    assert x.dtype == np.float32
    assert x.tolist()[:2] == [[0, 1, 3, 0, 1], [0, 255, 0, 2, 0]]
    assert x.tolist()[4] == [0, 0, 0, 1, 0]
    assert users(data) == ["books", "books", "dvd", "dvd", "books", "dvd"]
    write(tmp_path / "processed_acl" / "dvd" / "negative.review", "bad:2 #label#:mixed\n")
    with pytest.raises(ConfigError, match=r"negative.review, row 1: #label# must be positive or negative, not 'mixed'"):
        datasets.load("amazon-reviews", str(tmp_path), DataParams(length=7))


def test_windows_of_uci_har_keep_time_and_channels_apart(tmp_path: Path) -> None:
    for part, subject in (("train", 1), ("test", 2)):
        folder = tmp_path / "UCI HAR Dataset" / part
        (folder / "Inertial Signals").mkdir(parents=True)
        for number, name in enumerate(HAR_SIGNALS):
            np.savetxt(folder / "Inertial Signals" / f"{name}_{part}.txt", 1000 * number + np.arange(128)[None])
        write(folder / f"y_{part}.txt", "6\n")
        write(folder / f"subject_{part}.txt", f"{subject}\n")
    data = datasets.load("uci-har", str(tmp_path))
    x = stored(data)[0]
    assert x.shape == (128, 9)
    assert x[:, 3].tolist() == [3000 + step for step in range(128)]
    assert (data.targets.tolist(), users(data)) == ([5, 5], ["1", "2"])
    (tmp_path / "UCI HAR Dataset" / "train" / "y_train.txt").unlink()
    with pytest.raises(ConfigError, match=r"y_train.txt cannot be read as published"):
        datasets.load("uci-har", str(tmp_path), DataParams(length=7))


def test_windows_of_pamap2(tmp_path: Path) -> None:
    def rows(activity: int, count: int, offset: float) -> np.ndarray:
        table = np.full((count, 54), offset)
        table[:, 1], table[:, 2] = activity, np.nan  # the heart rate is mostly missing
        table[:, PAMAP2_CHANNELS[0]] = np.arange(count)
        return table

    protocol = tmp_path / "PAMAP2_Dataset" / "Protocol"
    protocol.mkdir(parents=True)
    lying = rows(1, 5 * WINDOW, 2.0)
    lying[10, PAMAP2_CHANNELS[0]] = np.nan  # a lost value
    np.savetxt(protocol / "subject101.dat", np.concatenate([rows(0, 300, 9.0), lying, rows(24, 2 * WINDOW, 3.0)]))
    np.savetxt(protocol / "subject109.dat", rows(24, 10 * WINDOW, 4.0))
    data = datasets.load("pamap2", str(tmp_path))
    assert (data.classes, data.shape) == (12, (WINDOW, 27))
    x, trains = stored(data), len(data.labels.train)
    lying_windows = np.flatnonzero(data.targets == 0)
    assert x[0, :, 0].tolist() == list(range(WINDOW))  # interpolated, and time is the first axis
    assert x[lying_windows[1], 0, 0] == STEP
    assert x[0, :, 1].tolist() == [2.0] * WINDOW
    last_train = x[[i for i in lying_windows if i < trains][-1], -1, 0]
    first_test = x[next(i for i in lying_windows if i >= trains), 0, 0]
    assert last_train < first_test  # no moment in both parts
    assert set(users(data)) == {"1", "9"}
    assert set(data.targets.tolist()) == {0, 11}  # without the time between activities
    assert data.samples(np.arange(trains)).mean((0, 1)) == pytest.approx(0, abs=1e-4)
    np.savetxt(protocol / "subject102.dat", np.where(np.arange(54) == 4, np.nan, rows(1, 600, 1.0)))
    with pytest.raises(ConfigError, match=r"subject102.dat: a sensor has no values at all"):
        datasets.load("pamap2", str(tmp_path), DataParams(length=7))


def test_tiny_imagenet_is_tested_on_its_validation_images(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(["n02", "n01"]):
        draw(folder / "train" / wnid / "images" / f"{wnid}_0.JPEG", np.full((64, 64, 3), 40 * number))
    draw(folder / "train" / "n01" / "images" / "n01_1.JPEG", np.full((64, 64), 9))  # some are grey
    draw(folder / "val" / "images" / "val_0.JPEG", np.full((64, 64, 3), 200))
    write(folder / "val" / "val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t62\t62\n")
    data = datasets.load("tiny-imagenet", str(tmp_path))
    assert (data.classes, data.shape, data.targets.tolist()) == (200, (3, 64, 64), [0, 0, 1, 1])
    assert stored(data)[:, 0, 5, 5].tolist() == [40, 9, 0, 200]


@pytest.mark.parametrize("place", ["omniglot/python", "torchvision/omniglot-py"])
def test_omniglot_is_bright_on_black_and_tested_on_every_fourth_drawer(tmp_path: Path, place: str) -> None:
    for number, name in enumerate(["images_background/Greek/character01", "images_evaluation/Elvish/character02"]):
        for drawer in (1, 3, 4):
            ink = np.full((105, 105), 255)
            ink[:50] = 0
            draw(tmp_path / place / name / f"{number:04d}_{drawer:02d}.png", ink)
    data = datasets.load("omniglot", str(tmp_path))
    assert (data.classes, data.shape, data.targets.tolist()) == (1623, (1, 28, 28), [0, 0, 1, 1, 0, 1])
    assert users(data) == ["1", "3", "1", "3", "4", "4"]
    x = stored(data)[0, 0]
    assert (x[3, 3], x[25, 25]) == (255, 0)


def test_omniglot_is_fetched_by_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(root: str, background: bool, download: bool) -> None:
        part = "background" if background else "evaluation"
        for drawer in (1, 4):
            draw(Path(root) / "omniglot-py" / f"images_{part}" / "A" / "c" / f"1_{drawer}.png", np.zeros((105, 105)))

    monkeypatch.setattr(torchvision.datasets, "Omniglot", fetched)
    assert datasets.load("omniglot", str(tmp_path)).targets.tolist() == [0, 1, 0, 1]


def test_mnist_m(tmp_path: Path) -> None:
    for part, label in (("train", 7), ("test", 3)):
        draw(tmp_path / "mnist_m" / f"mnist_m_{part}" / "00000000.png", np.full((32, 32, 3), label))
        write(tmp_path / "mnist_m" / f"mnist_m_{part}_labels.txt", f"00000000.png {label}\n")
    data = datasets.load("mnist-m", str(tmp_path))
    assert (data.shape, data.targets.tolist(), stored(data)[:, 0, 0, 0].tolist()) == ((3, 32, 32), [7, 3], [7, 3])
    write(tmp_path / "mnist_m" / "mnist_m_test_labels.txt", "00000001.png 3\n")
    with pytest.raises(ConfigError, match=r"00000001.png cannot be read as an image"):
        datasets.load("mnist-m", str(tmp_path), DataParams(length=7))


def test_synthetic_digits(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    savemat(tmp_path / "synth_train_32x32.mat", {"X": x, "y": np.array([[1], [2], [10], [0]])})
    savemat(tmp_path / "synth_test_32x32.mat", {"X": x[..., :1], "y": np.array([[9]])})
    data = datasets.load("syn", str(tmp_path))
    assert data.targets.tolist() == [1, 2, 0, 0, 9]
    assert np.array_equal(stored(data)[1], x[..., 1].transpose(2, 0, 1))
    (tmp_path / "synth_test_32x32.mat").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"synth_test_32x32.mat cannot be read as published"):
        datasets.load("syn", str(tmp_path), DataParams(length=7))


def test_the_domains_of_pacs_are_users_and_a_fifth_of_each_class_is_held_out(tmp_path: Path) -> None:
    for domain, shade in (("photo", 10), ("sketch", 20)):
        for name in ("dog", "house"):
            for number in range(5):
                draw(tmp_path / "PACS" / domain / name / f"{number}.jpg", np.full((227, 200 + number, 3), shade))
    data = datasets.load("pacs", str(tmp_path))
    assert (data.shape, len(data.labels.train), len(data.labels.test)) == ((3, 64, 64), 16, 4)
    assert data.labels.test.tolist() == [0, 1, 0, 1]
    assert users(data) == ["photo"] * 8 + ["sketch"] * 8 + ["photo"] * 2 + ["sketch"] * 2
    assert datasets.load("pacs", str(tmp_path), DataParams(size=16)).shape == (3, 16, 16)


def test_domainnet_has_lists_of_its_parts(tmp_path: Path) -> None:
    folder = tmp_path / "domainnet"
    for domain in ("clipart", "real"):
        for name in ("ant", "bee"):
            draw(folder / domain / name / "1.jpg", np.full((30, 20, 3), 7))
        write(folder / f"{domain}_train.txt", f"{domain}/bee/1.jpg 1\n")
        write(folder / f"{domain}_test.txt", f"{domain}/ant/1.jpg 0\n")
    data = datasets.load("domainnet", str(tmp_path))
    assert (data.classes, data.targets.tolist(), users(data)) == (345, [1, 1, 0, 0], ["clipart", "real"] * 2)
    write(folder / "real_train.txt", "real/wasp/1.jpg 1\n")
    with pytest.raises(ConfigError, match=r"real/wasp/1.jpg cannot be read as an image"):
        datasets.load("domainnet", str(tmp_path), DataParams(size=8))


def test_digit_5_puts_five_domains_side_by_side(tmp_path: Path) -> None:
    shapes = {"mnist": (28, 28), "mnist-m": (32, 32, 3), "usps": (16, 16), "svhn": (32, 32, 3), "syn": (32, 32, 3)}
    for name, shape in shapes.items():
        x, y = RNG.integers(0, 256, (20, *shape), dtype=np.uint8), np.arange(20) % 10
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    data = datasets.load("digit-5", str(tmp_path))
    assert (data.classes, data.shape, data.labels.sources) == (10, (3, 32, 32), tuple(shapes))
