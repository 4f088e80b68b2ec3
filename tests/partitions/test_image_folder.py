"""A folder of images as a silo's data: labels, colors, the held-out part, and what is wrong with a bad folder."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsim.errors import ConfigError
from fedsim.partitions import datasets

RNG = np.random.default_rng(0)


def picture(file: Path, *shape: int) -> np.ndarray:
    """Writes noise of this shape (height, width, channels); returns it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten cats and five dogs for training."""
    for name, count in (("cat", 10), ("dog", 5)):
        for i in range(count):
            picture(tmp_path / "pets" / "train" / name / f"{i}.png", 4, 6)
    return tmp_path / "pets"


def test_sorted_class_names_are_the_labels_and_grey_stays_grey(folder: Path) -> None:
    first = picture(folder / "test" / "dog" / "a.png", 4, 6)
    picture(folder / "test" / "ant" / "b.png", 4, 6)
    (folder / "train" / "cat" / "Thumbs.db").touch()
    data = datasets.load(str(folder))
    assert (data.shape, data.classes) == ((1, 4, 6), 3)
    assert data.labels.train.tolist() == [1] * 10 + [2] * 5
    assert data.labels.test.tolist() == [0, 2]
    assert np.array_equal(data.samples(np.array([16]), normalized=False)[0, 0], first)
    assert data.samples(np.arange(15)).std() == pytest.approx(1, abs=1e-3)


def test_a_name_below_the_data_root_works_too(folder: Path) -> None:
    assert datasets.load("pets", str(folder.parent)).shape == (1, 4, 6)


def test_without_tests_the_same_fifth_of_every_class_is_held_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = datasets.load(str(folder))
    assert np.bincount(data.labels.train).tolist() == [8, 4]
    assert np.bincount(data.labels.test).tolist() == [2, 1]
    monkeypatch.setenv("FEDSIM_CACHE", str(tmp_path / "another machine"))
    again = datasets.load(str(folder))
    every = np.arange(15)
    assert np.array_equal(data.samples(every), again.samples(every))
    assert len(np.unique(data.samples(every), axis=0)) == 15  # no image is in both parts


def test_one_color_image_makes_all_three_channels(folder: Path) -> None:
    color = picture(folder / "test" / "cat" / "a.png", 4, 6, 3)
    grey = np.asarray(Image.open(folder / "train" / "cat" / "0.png"))
    data = datasets.load(str(folder))
    assert data.shape == (3, 4, 6)
    x = data.samples(np.array([0, 15]), normalized=False)
    assert np.array_equal(x[0], np.stack([grey] * 3))
    assert np.array_equal(x[1], color.transpose(2, 0, 1))


def test_silos_with_different_classes_share_a_list(folder: Path) -> None:
    (folder / "classes.txt").write_text("dog\nbird\ncat\n")
    data = datasets.load(str(folder))
    assert data.classes == 3
    assert sorted(set(data.labels.train.tolist())) == [0, 2]
    (folder / "classes.txt").write_text("dog\nbird\n")
    with pytest.raises(ConfigError, match=r"classes.txt must list every class once.*'cat'"):
        datasets.load(str(folder))


def test_a_new_image_is_noticed(folder: Path) -> None:
    assert len(datasets.load(str(folder)).labels.pooled) == 15
    picture(folder / "train" / "dog" / "new.png", 4, 6)
    assert len(datasets.load(str(folder)).labels.pooled) == 16


def test_a_prepared_folder_is_mapped_and_not_read_again(folder: Path) -> None:
    datasets.load(str(folder))
    loaded = datasets.load(str(folder))
    assert isinstance(loaded.parts[0].x_train, np.memmap)


def too_large(folder: Path) -> None:
    picture(folder / "train" / "dog" / "odd.png", 5, 6)


def too_deep(folder: Path) -> None:
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(folder / "train" / "dog" / "odd.png")


def truncated(folder: Path) -> None:
    file = folder / "train" / "dog" / "odd.png"
    picture(file, 4, 6)
    file.write_bytes(file.read_bytes()[:60])


def no_image(folder: Path) -> None:
    (folder / "train" / "dog" / "odd.png").write_text("no image")


def empty_class(folder: Path) -> None:
    (folder / "train" / "odd").mkdir()


def empty_part(folder: Path) -> None:
    (folder / "test").mkdir()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (too_large, r"odd.png is 6x5 but .*0.png is 6x4 \(width x height\): bring all images to one size"),
        (too_deep, "odd.png has more than 8 bits a channel"),
        (truncated, "odd.png cannot be read as an image"),
        (no_image, "odd.png cannot be read as an image"),
        (empty_class, "train/odd holds no image; expected files ending in .*png"),
        (empty_part, "test holds no class folders; expected .*test/CLASS"),
    ],
)
def test_a_bad_folder_is_refused_by_name(folder: Path, harm: object, says: str) -> None:
    harm(folder)
    with pytest.raises(ConfigError, match=says) as refused:
        datasets.load(str(folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("make", "says"), [(False, "is not there"), (True, "holds no dataset")])
def test_a_path_with_nothing_usable(tmp_path: Path, make: bool, says: str) -> None:
    path = tmp_path / "silo"
    if make:
        path.mkdir()
    with pytest.raises(ConfigError, match=f"{path} {says}; expected an npz file with x_train.*or a folder"):
        datasets.load(str(path))
