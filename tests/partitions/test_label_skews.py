"""Shards, pathological, Dirichlet, quantity, IID on a few classes: the sizes and labels each is known for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.errors import ConfigError
from fedsim.partitions import dirichlet
from fedsim.partitions.allocation import apportion, draw_classes
from tests.partitions.known import held, labels, split


def test_shards_are_mcmahans() -> None:
    """60,000 sorted digits, 200 shards of 300, two for each of 100 clients: most clients see two digits."""
    data = labels(per_class=6000, tests=1000)
    shares = split("shards", data, 100)
    assert {len(s.train) for s in shares} == {600}
    assert {len(s.test) for s in shares} == {100}
    assert max(len(held(data, s)) for s in shares) <= 2  # class sizes are multiples of 300, so no shard has two labels


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10), st.integers(1, 20), st.integers(0, 1000))
def test_pathological_clients_hold_exactly_k_classes(k: int, clients: int, seed: int) -> None:
    data = labels(per_class=60, tests=30)
    shares = split("pathological", data, clients, seed, classes=k)
    assert all(len(held(data, s)) == k for s in shares)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 30), st.integers(0, 1000))
def test_every_label_is_drawn_if_there_is_room(clients: int, each: int, classes: int, seed: int) -> None:
    each = min(each, classes)
    drawn = draw_classes(np.arange(classes), clients, each, np.random.default_rng(seed))
    assert all(len(set(own.tolist())) == each for own in drawn)
    if clients * each >= classes:
        assert set(np.concatenate(drawn).tolist()) == set(range(classes))


def test_holders_of_a_class_share_it_equally() -> None:
    data = labels(per_class=60)
    shares = split("pathological", data, 10, classes=2)
    counts = np.stack([np.bincount(data.train[s.train], minlength=10) for s in shares])
    for column in counts.T:
        assert column[column > 0].max() - column[column > 0].min() <= 1


def test_the_tests_follow_the_training_proportions() -> None:
    data = labels(per_class=100, tests=50)
    for share in split("dirichlet", data, 5, alpha=1.0):
        train = np.bincount(data.pooled[share.train], minlength=10)
        test = np.bincount(data.pooled[share.test], minlength=10)
        assert np.abs(train / 2 - test).max() <= 1.5  # half as many tests per class, up to rounding


def test_a_large_alpha_is_even_and_a_small_one_is_not() -> None:
    data = labels(per_class=1000)
    spread = {
        alpha: np.std([len(s.train) for s in split("dirichlet", data, 10, alpha=alpha, min_size=1, balance=False)])
        for alpha in (0.1, 1000.0)
    }
    assert spread[1000.0] < 50 < spread[0.1]


@given(st.lists(st.integers(10, 80), min_size=2, max_size=8), st.integers(1, 6), st.integers(0, 500), st.booleans())
@settings(deadline=None)
def test_dirichlet_counts_use_up_every_class(sizes: list[int], clients: int, seed: int, balance: bool) -> None:
    [counts] = dirichlet.counts([(np.array(sizes), clients)], 1.0, 1, np.random.default_rng(seed), balance)
    assert counts.sum(axis=0).tolist() == sizes
    assert counts.sum(axis=1).min() >= 1


def test_a_tiny_alpha_still_uses_up_every_class() -> None:
    [counts] = dirichlet.counts([(np.full(20, 50), 10)], 1e-4, 1, np.random.default_rng(0))
    assert counts.sum(axis=0).tolist() == [50] * 20


@pytest.mark.parametrize(("law", "ratio"), [("linear", 4.0), ("square", 16.0), ("exponential", np.exp(3))])
def test_quantity_laws(law: str, ratio: float) -> None:
    sizes = sorted(len(s.train) for s in split("quantity", labels(per_class=1000), 4, law=law, min_size=1))
    assert sum(sizes) == 10_000
    assert sizes[-1] / sizes[0] == pytest.approx(ratio, rel=0.02)


def test_quantity_keeps_the_minimum_where_the_law_gives_nothing() -> None:
    sizes = [len(s.train) for s in split("quantity", labels(), 30, law="exponential", min_size=7)]
    assert min(sizes) == 7
    assert sum(sizes) == 600


def test_clients_share_a_test_sample_only_when_there_are_too_few() -> None:
    data = labels(per_class=30, tests=2)
    tests = np.concatenate([s.test for s in split("iid", data, 30)])
    assert (len(tests), len(np.unique(tests))) == (30, 20)


def test_iid_of_two_classes_means_the_same_two_for_all() -> None:
    data = labels()
    shares = split("iid", data, 6, classes=2)
    assert len({frozenset(held(data, s)) for s in shares}) == 1
    assert {len(s.train) for s in shares} == {20}


@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 100), min_size=1, max_size=50))
def test_whole_numbers_add_up_and_stay_next_to_the_exact_ones(total: int, weights: list[float]) -> None:
    counts = apportion(total, np.array(weights))
    assert counts.sum() == total
    assert np.abs(counts - total * np.array(weights) / np.sum(weights)).max() < 1 + 1e-6


@pytest.mark.parametrize("name", ["dirichlet", "iid"])
def test_a_size_takes_a_part_of_the_training_samples_and_all_tests(name: str) -> None:
    data = labels(per_class=100, tests=50)
    shares = split(name, data, 5, size=40)
    trains = np.concatenate([share.train for share in shares])
    assert len(np.unique(trains)) == 5 * 40
    assert len(np.unique(np.concatenate([share.test for share in shares]))) == 500
    if name == "dirichlet":  # every class in its proportion
        assert np.bincount(data.train[trains], minlength=10).tolist() == [20] * 10
    else:
        assert {len(share.train) for share in shares} == {40}
    with pytest.raises(ConfigError, match=r"partition.size=201 asks for 1005 .* of 1000; .* partition.size=200"):
        split(name, data, 5, size=201)
