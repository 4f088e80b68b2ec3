"""Datasets of the Hugging Face hub, read by its own library from local copies."""

import sys
from pathlib import Path
from typing import Any

import datasets as hugging_face
import numpy as np
import pytest

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import datasets

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hugging_face.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hugging_face.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def publish(folder: Path, features: dict[str, Any], **splits: dict[str, Any]) -> None:
    """A dataset as the hub stores it: Parquet files with the features in their metadata."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, columns in splits.items():
        made = hugging_face.Dataset.from_dict(columns, hugging_face.Features(features))
        made.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")


CLASSES = hugging_face.ClassLabel(names=["world", "sports", "business"])
TEXT = {"text": hugging_face.Value("string"), "label": CLASSES}


def test_texts_with_class_labels_by_name_and_by_path(tmp_path: Path) -> None:
    train = {"text": ["a goal", "a bank"], "label": [1, 2]}
    publish(tmp_path / "lab" / "news", TEXT, train=train, validation={"text": ["the goal"], "label": [1]})
    data = datasets.load("hf:lab/news", str(tmp_path), DataParams(length=3))
    assert (data.classes, data.targets.tolist(), data.vocabulary) == (3, [1, 2, 1], 5)
    assert data.samples(np.array([2])).tolist() == [[1, 4, 0]]
    assert datasets.load(f"hf:{tmp_path / 'lab' / 'news'}", "", DataParams(length=3)).fingerprint == data.fingerprint


def test_images_and_users(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (10, 6, 5, 3), dtype=np.uint8)
    features = {"picture": hugging_face.Image(), "who": hugging_face.Value("string"), "kind": CLASSES}
    people = [f"p{i % 2}" for i in range(10)]
    publish(tmp_path / "o" / "n", features, train={"picture": list(pixels), "who": people, "kind": [0, 1] * 5})
    data = datasets.load("hf:o/n", str(tmp_path), DataParams(label="kind", user="who"))
    assert (data.shape, len(data.labels.test)) == ((3, 6, 5), 2)  # a fifth of every class is held out
    found = data.samples(np.arange(10), normalized=False).astype(np.uint8).transpose(0, 2, 3, 1)
    assert {x.tobytes() for x in found} == {x.tobytes() for x in pixels}
    assert data.labels.users is not None
    order = [next(i for i in range(10) if np.array_equal(pixels[i], x)) for x in found]
    assert [str(user) for user in data.labels.users] == [people[i] for i in order]
    assert datasets.load("hf:o/n", str(tmp_path), DataParams(label="kind", user="who", size=4)).shape == (3, 4, 4)


def test_nested_numbers_and_a_chosen_split(tmp_path: Path) -> None:
    windows = RNG.normal(size=(3, 4, 2)).astype(np.float32)
    features = {"x": hugging_face.Array2D((4, 2), "float32"), "label": hugging_face.Value("int64")}
    columns = {"x": windows, "label": [0, 1, 2]}
    publish(tmp_path / "o" / "w", features, train=columns, later={"x": windows[:1], "label": [2]})
    data = datasets.load("hf:o/w", str(tmp_path), DataParams(test="later"))
    assert np.array_equal(data.samples(np.arange(3), normalized=False), windows)
    assert data.targets.tolist() == [0, 1, 2, 2]
    with pytest.raises(ConfigError, match=r"hf:o/w has no split data.test=dev. Its splits: train, later"):
        datasets.load("hf:o/w", str(tmp_path), DataParams(test="dev"))


def test_what_the_hub_cannot_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=rf"hf:nobody/nothing cannot be loaded: .*folder {tmp_path}/nobody/nothing$"):
        datasets.load("hf:nobody/nothing", str(tmp_path))
    publish(tmp_path / "o" / "t", TEXT, train={"text": ["a"], "label": [1]}, test={"text": ["b"], "label": [-1]})
    with pytest.raises(ConfigError, match=r"y_test holds the label -1; labels run from 0 to 2"):
        datasets.load("hf:o/t", str(tmp_path))
    with pytest.raises(ConfigError, match=r"unknown column for data.label of hf:o/t 'kind'.*Choices: label, text"):
        datasets.load("hf:o/t", str(tmp_path), DataParams(label="kind"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedsim-flower\[hub\]'"):
        datasets.load("hf:o/t", str(tmp_path), DataParams(length=9))


def test_known_datasets_come_from_the_hub_with_their_own_columns(tmp_path: Path) -> None:
    letters = [str(number) for number in range(62)]
    features = {"image": hugging_face.Image(), "writer_id": hugging_face.Value("string")}
    features |= {"hsf_id": hugging_face.Value("int64"), "character": hugging_face.ClassLabel(names=letters)}
    images = list(RNG.integers(0, 256, (10, 28, 28), dtype=np.uint8))
    columns = {"image": images, "writer_id": ["f1", "f2"] * 5, "hsf_id": [0] * 10, "character": [3] * 5 + [60] * 5}
    publish(tmp_path / "flwrlabs" / "femnist", features, train=columns)
    data = datasets.load("femnist", str(tmp_path))
    assert (data.classes, data.shape, len(data.labels.train)) == (62, (1, 28, 28), 8)
    lines = {"character_id": ["A", "B"], "x": ["ab" * 40, "b" * 80], "y": ["a", "\n"]}
    publish(
        tmp_path / "flwrlabs" / "shakespeare", {k: hugging_face.Value("string") for k in lines}, train=lines, test=lines
    )
    data = datasets.load("shakespeare", str(tmp_path))
    assert (data.shape, data.vocabulary, data.classes, data.targets.tolist()) == ((80,), 82, 80, [53, 0, 53, 0])
