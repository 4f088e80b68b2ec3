"""Texts, published files and domains: what models and clients get of them."""

from pathlib import Path

import numpy as np
import pytest

from fedsim import registry
from fedsim.clients import text_models
from fedsim.clients.task import TorchTask
from fedsim.config import DataParams, read
from fedsim.errors import ConfigError
from fedsim.partitions import datasets, text
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
    tokenizer = text.Tokenizer(length=3, size=4)
    counts = tokenizer.counter()
    counts.add(["b b a c"])
    words = tokenizer.vocabulary(counts)
    assert words == {"b": 2, "a": 3}
    assert tokenizer.encoded(["c b a b", ""], words).tolist() == [[1, 2, 3], [0, 0, 0]]


def test_the_file_of_a_vocabulary_can_be_the_vocabulary(tmp_path: Path) -> None:
    lines = np.array(["a\nb", "c\\n", "b b"])
    np.savez(tmp_path / "lines.npz", x_train=lines, y_train=[0, 1, 0], x_test=lines, y_test=[0, 1, 0])
    first = datasets.load("lines", str(tmp_path), DataParams(tokenizer="characters", length=4))
    assert first.vocabulary == 9  # line break, blank, backslash, a, b, c, n
    written = first.parts[0].tokens
    again = datasets.load("lines", str(tmp_path), DataParams(tokenizer="characters", length=4, tokens=str(written)))
    assert np.array_equal(again.samples(np.arange(6)), first.samples(np.arange(6)))


def test_the_rarest_tokens_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "COUNTED", 4)
    counts = text.Tokenizer().counter()
    for texts in (["a a b b c d e"], ["a b x y z"]):
        counts.add(texts)
    assert counts.ranked()[:2] == ["a", "b"]
    assert len(counts.ranked()) <= 4


def test_positions_in_an_alphabet_leave_room_for_padding(tmp_path: Path) -> None:
    x = np.array([[0, 1, 2]], np.uint8)
    arrays = {"x_train": x, "y_train": [1], "x_test": x, "y_test": [0]}
    np.savez(tmp_path / "letters.npz", **arrays, alphabet="abc")
    data = datasets.load("letters", str(tmp_path))
    assert (data.vocabulary, data.samples(np.array([0])).tolist()) == (5, [[2, 3, 4]])
    np.savez(tmp_path / "wrong.npz", **arrays, vocabulary=2)
    with pytest.raises(ConfigError, match="holds the token 2; tokens run from 0 to 1"):
        datasets.load("wrong", str(tmp_path))
    signed = {"x_train": x.astype(int), "x_test": np.array([[-1, 0, 0]])}
    np.savez(tmp_path / "negative.npz", **{**arrays, **signed}, vocabulary=9)
    with pytest.raises(ConfigError, match="x_test holds the token -1; tokens run from 0 to 8"):
        datasets.load("negative", str(tmp_path))


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


def test_a_domain_with_too_few_samples_for_its_clients_leaves_none_empty() -> None:
    users = np.array(["art", "art", "photo", "photo", "art", "photo"])
    given = known.Labels(np.zeros(4, np.int64), np.zeros(2, np.int64), 1, users=users)
    with pytest.raises(
        ConfigError, match="a domain has 1 training or test samples, too few for 2 clients; use clients=2 or fewer"
    ):
        known.split("by-domain", given, 4)


def test_a_domain_without_tests_holds_some_out() -> None:
    train, test = np.zeros(20, np.int64), np.zeros(10, np.int64)
    given = known.Labels(train, test, 1, users=np.repeat(["old", "new"], [20, 10]))
    shares = known.split("by-domain", given, 2)
    assert [(len(s.train), len(s.test)) for s in shares] == [(8, 2), (16, 4)]
    assert known.disjoint([s.train for s in shares] + [s.test for s in shares])


@pytest.mark.parametrize("partition", ["by-domain", "by-user"])
def test_clients_of_users_and_domains_can_be_smaller(partition: str) -> None:
    train, test = np.zeros(60, np.int64), np.zeros(30, np.int64)
    owners = np.concatenate([np.repeat(["old", "new"], [50, 10]), np.repeat(["old", "new"], [25, 5])])
    given = known.Labels(train, test, 1, users=owners)
    whole, smaller = known.split(partition, given, 2), known.split(partition, given, 2, size=20, tests=10)
    assert sorted((len(s.train), len(s.test)) for s in smaller) == [(10, 5), (20, 10)]
    for all_of_it, part in zip(whole, smaller, strict=True):
        assert set(part.train) <= set(all_of_it.train)
        assert set(part.test) <= set(all_of_it.test)


def test_signals_are_normalized_per_channel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal((0.0, 5.0), (1.0, 0.1), (40, 8, 2)).astype(np.float32)
    np.savez(tmp_path / "uci-har.npz", x_train=x[:30], y_train=[0, 1] * 15, x_test=x[30:], y_test=[0, 1] * 5)
    np.savez(tmp_path / "own.npz", x_train=x[:30], y_train=[0, 1] * 15, x_test=x[30:], y_test=[0, 1] * 5)
    signals = datasets.load("uci-har", str(tmp_path)).samples(np.arange(30))
    np.testing.assert_allclose(signals.mean((0, 1)), 0, atol=1e-4)
    np.testing.assert_allclose(signals.std((0, 1)), 1, atol=1e-4)
    np.testing.assert_array_equal(datasets.load("own", str(tmp_path)).samples(np.arange(30)), x[:30])
