"""Texts, published files and domains: what models and clients get of them."""

from pathlib import Path

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients import text_models
from fedsim.clients.task import TorchTask
from fedsim.config import read
from fedsim.errors import ConfigError
from fedsim.partitions import datasets, official, text
from fedsim.partitions.client_data import client_data
from tests.partitions import known


def test_the_vocabulary_is_of_the_training_texts_and_padding_is_on_the_right(tmp_path: Path) -> None:
    train, test = np.array(["The cat, the CAT!", "a dog"]), np.array(["the unseen dog"])
    labels = {"y_train": np.array(["sport", "arts"]), "y_test": np.array(["world"])}
    np.savez(tmp_path / "texts.npz", x_train=train, x_test=np.char.encode(test, "utf8"), **labels)
    data = datasets.load("texts", str(tmp_path))
    # cat and the twice, then ! , a dog once: ids 2 3 4 5 6 7
    assert data.vocabulary == 8
    x = data.samples(np.arange(3))
    assert x.dtype == np.int64
    assert x[0, :7].tolist() == [3, 2, 5, 3, 2, 4, text.PAD]
    assert x[2, :4].tolist() == [3, text.UNKNOWN, 7, text.PAD]
    assert data.targets.tolist() == [1, 0, 2]  # arts, sport, world: one of them only in the tests
    assert data.classes == 3


def test_long_texts_are_cut_and_the_vocabulary_is_limited() -> None:
    words = text.vocabulary_of(["b b a c"], size=4)
    assert words == {"b": 2, "a": 3}
    assert text.encoded(["c b a b"], words, length=3).tolist() == [[1, 2, 3]]


def test_positions_in_an_alphabet_leave_room_for_padding(tmp_path: Path) -> None:
    x = np.array([[0, 1, 2]], np.uint8)
    arrays = {"x_train": x, "y_train": [1], "x_test": x, "y_test": [0]}
    np.savez(tmp_path / "letters.npz", **arrays, alphabet="abc")
    data = datasets.load("letters", str(tmp_path))
    assert (data.vocabulary, data.samples(np.array([0])).tolist()) == (5, [[2, 3, 4]])
    np.savez(tmp_path / "wrong.npz", **arrays, vocabulary=2)
    with pytest.raises(ConfigError, match="holds the token 2; tokens run from 0 to 1"):
        datasets.load("wrong", str(tmp_path))


def mean_of_ids(shape: tuple[int, ...], classes: int, vocabulary: int) -> text_models.FastText:
    return text_models.FastText(shape, classes, vocabulary)


def test_a_factory_that_asks_for_it_gets_the_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.providers("model"), "mean-of-ids", f"{__name__}:mean_of_ids")
    x = np.array([[2, 3], [4, 5]])
    np.savez(tmp_path / "ids.npz", x_train=x, y_train=[0, 1], x_test=x, y_test=[0, 1], vocabulary=9)
    config = read(None, ["dataset=ids", f"data-root={tmp_path}", "clients=1", "model=mean-of-ids"])
    layout = TorchTask(config, client_data(config, 0), 2).layout
    assert layout.parameters[0].shape == (9, 64)
    with pytest.raises(ConfigError, match=r"'mlr' needs real numbers, not token ids .* Models that fit: fasttext, "):
        TorchTask(config.replace(model="mlr"), client_data(config, 0), 2)


def test_news_as_published(tmp_path: Path) -> None:
    folder = tmp_path / "ag_news_csv"
    folder.mkdir()
    (folder / "train.csv").write_text('"4","Fast, chips","a ""new"" one"\n"1","War","end"\n')
    (folder / "test.csv").write_text('"2","Goal","chips"\n')
    data = datasets.load("ag-news", str(tmp_path))
    assert (data.classes, data.targets.tolist()) == (4, [3, 0, 1])
    assert np.count_nonzero(data.samples(np.array([0]))) == 8  # fast , chips a " new " one
    (folder / "train.csv").write_text("title,text\n")
    with pytest.raises(ConfigError, match=r"train.csv, row 1: expected a class number"):
        official.news(datasets.find("ag-news"), tmp_path)  # type: ignore[arg-type]


def test_windows_of_uci_har_keep_time_and_channels_apart(tmp_path: Path) -> None:
    for part, subject in (("train", 1), ("test", 2)):
        folder = tmp_path / "UCI HAR Dataset" / part
        (folder / "Inertial Signals").mkdir(parents=True)
        for number, name in enumerate(official.HAR_SIGNALS):
            np.savetxt(folder / "Inertial Signals" / f"{name}_{part}.txt", 1000 * number + np.arange(128)[None])
        (folder / f"y_{part}.txt").write_text("6\n")
        (folder / f"subject_{part}.txt").write_text(f"{subject}\n")
    data = datasets.load("uci-har", str(tmp_path))
    x = data.samples(np.array([0]))[0]
    assert x.shape == (128, 9)
    assert x[:, 3].tolist() == [3000 + step for step in range(128)]
    assert data.labels.users is not None
    assert (data.targets.tolist(), data.labels.users.tolist()) == ([5, 5], ["1", "2"])


@pytest.mark.parametrize("name", ["ag-news", "uci-har", "pacs", "femnist", "amazon-reviews"])
def test_what_is_missing_is_named_with_its_source(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"dataset '{name}' is not here: expected {tmp_path / name}.npz .*from"
    ) as told:
        datasets.load(name, str(tmp_path))
    assert "\n" not in str(told.value)


def test_counts_reach_models_as_real_numbers(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.savez(tmp_path / "amazon-reviews.npz", x_train=x, y_train=[0, 1], x_test=x, y_test=[0, 1])
    data = datasets.load("amazon-reviews", str(tmp_path))
    assert (data.vocabulary, data.samples(np.array([1])).dtype) == (0, np.float32)


def test_domains_are_divided_between_their_clients() -> None:
    given = known.labels()
    users = np.where(np.arange(len(given.pooled)) % 3 == 0, "art", "photo")
    given = known.Labels(given.train, given.test, given.classes, users=users)
    shares = known.split("by-domain", given, 5)
    held = [set(users[np.concatenate([s.train, s.test])].tolist()) for s in shares]
    assert held == [{"art"}] * 3 + [{"photo"}] * 2 or held == [{"art"}] * 2 + [{"photo"}] * 3
    assert known.disjoint([s.train for s in shares])
    assert sum(len(s.train) + len(s.test) for s in shares) == len(users)
    with pytest.raises(ConfigError, match="1 clients cannot hold 2 domains; use clients=2 or more"):
        known.split("by-domain", given, 1)
