"""What every split promises, whatever the data, the number of clients and the seed."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.partitions import PARTITIONS as ALL
from fedsim.partitions.catalogue import MIX4
from fedsim.partitions.split import Labels, Share
from tests.partitions.known import disjoint, held, labels, side_by_side, split

PARTITIONS = [name for name in ALL if name != "own"]  # which splits nothing
COMPLETE = (
    *("iid", "quantity", "shards", "pathological", "dirichlet"),
    *("c-niid", "sc-niid", "c-dir", "sc-dir", "by-user", "by-domain"),
)
OVERLAPPING_TESTS = ("c-niid", "sc-niid", "c-dir", "sc-dir", "mix4", "labels")
SMALL = {"dirichlet": {"min_size": 2}, "c-dir": {"min_size": 2}, "sc-dir": {"min_size": 2}, "quantity": {"min_size": 3}}


def draw(name: str, clients: int, seed: int) -> tuple[Labels, list[Share]]:
    if name == "mix4":
        data = side_by_side((300, 600, 500, 500), (30, 40, 50, 60), MIX4.parts)
        return data, split(name, data, clients, seed, size=20)
    if name == "by-domain":
        data = side_by_side((300, 600, 500, 400), (100, 150, 200, 120), MIX4.parts)
        return data, split(name, data, clients, seed)
    data = labels()
    return data, split(name, data, clients, seed, **SMALL.get(name, {}))


@pytest.mark.parametrize("name", PARTITIONS)
@settings(max_examples=25, deadline=None)
@given(clients=st.integers(5, 12), seed=st.integers(0, 2**31))
def test_promises(name: str, clients: int, seed: int) -> None:
    data, shares = draw(name, clients, seed)
    trains, tests = [s.train for s in shares], [s.test for s in shares]
    assert len(shares) == clients
    assert all(len(t) for t in trains), "every client has training data"
    assert all(len(t) for t in tests), "every client has test data"
    assert disjoint(trains)
    assert name in OVERLAPPING_TESTS or disjoint(tests)
    assert all(disjoint([s.train, s.test]) for s in shares), "no client is tested on its training samples"
    pooled = np.concatenate(trains + tests)
    assert pooled.min() >= 0
    assert pooled.max() < len(data.train) + len(data.test)
    if name in COMPLETE:
        assert len(np.concatenate(trains)) == len(data.train)


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_client_is_tested_only_on_labels_it_was_trained_on(name: str) -> None:
    data, shares = draw(name, 8, seed=3)
    if name not in (
        "by-user",
        "practical",
    ):  # users bring the tests they have; a law may draw a rare class for tests only
        assert all(set(data.pooled[s.test].tolist()) <= held(data, s) for s in shares)


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_seed_decides(name: str) -> None:
    first, again, other = (draw(name, 8, seed)[1] for seed in (5, 5, 6))
    assert all(
        np.array_equal(a.train, b.train) and np.array_equal(a.test, b.test) for a, b in zip(first, again, strict=True)
    )
    assert any(not np.array_equal(a.train, b.train) for a, b in zip(first, other, strict=True))


# What seed 5 draws for eight clients. If one of these changes, raise `fedsim.partitions.client_data.FORMAT`.
DRAWN = {
    "iid": "9f5047575b13",
    "quantity": "e43dde38d01f",
    "shards": "3de0d1df5349",
    "pathological": "fc45414e9a24",
    "dirichlet": "22495a6b7faa",
    "classes": "7b060913c32e",
    "labels": "dfcef4046849",
    "practical": "f82c8ddfc3ff",
    "c-niid": "5ba834d48f94",
    "sc-niid": "4306de6b8b03",
    "c-dir": "1782449eda9d",
    "sc-dir": "fef65a2a862e",
    "mix4": "21fb3d85c75b",
    "feature-shift": "9f5047575b13",
    "by-domain": "5d900984e512",
    "by-user": "88676acf7cf7",
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_same_seed_draws_the_same_split_on_every_machine(name: str) -> None:
    shares = draw(name, 8, seed=5)[1]
    content = b"".join(part.astype("<i8").tobytes() for share in shares for part in (share.train, share.test))
    assert hashlib.sha256(content).hexdigest()[:12] == DRAWN[name]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=40, max_size=200),
    st.lists(st.integers(0, 4), min_size=40, max_size=80),
    st.integers(1, 6),
    st.integers(0, 1000),
)
def test_iid_gives_equal_sizes_whatever_the_labels(train: list[int], test: list[int], clients: int, seed: int) -> None:
    held_labels = np.isin(test, train)
    data = Labels(np.array(train), np.where(held_labels, test, train[0]), 5)
    shares = split("iid", data, clients, seed)
    sizes = [len(s.train) for s in shares]
    assert sum(sizes) == len(train)
    assert max(sizes) - min(sizes) <= 1
    assert sum(len(s.test) for s in shares) == len(test)
