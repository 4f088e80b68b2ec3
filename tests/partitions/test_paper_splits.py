"""The splits of the papers: the numbers they print come out."""

import numpy as np
import pytest

from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import MIX4
from fedsim.partitions.practical import CIFAR100_COARSE, groups_of
from fedsim.partitions.split import Labels
from fedsim.partitions.superclusters import TABLE
from tests.partitions.known import CLUSTERS, disjoint, held, labels, side_by_side, split

MNIST_CLASSES = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])


@pytest.mark.parametrize(
    ("classes", "per_class", "k", "train", "test"),
    [(10, 5000, 6, 2400, 600), (100, 500, 60, 2400, 600), (47, 2400, 32, 6144, 1536)],
    ids=["cifar10", "cifar100", "emnist-balanced"],
)
def test_spfl_sizes(classes: int, per_class: int, k: int, train: int, test: int) -> None:
    """SPFL, table 5: ten clients, 80/20."""
    data = labels(per_class, 1, classes)
    for shared in (False, True):
        shares = split("classes", data, 10, classes=k, shared=shared)
        assert {(len(s.train), len(s.test)) for s in shares} == {(train, test)}
        assert disjoint([np.concatenate([s.train, s.test]) for s in shares])
        assert (len({frozenset(held(data, s)) for s in shares}) == 1) == shared
        assert max(s.test.max() for s in shares) < len(data.train)  # the official test part stays untouched


def test_spfl_with_few_training_samples_keeps_its_test_data() -> None:
    data = labels(6000, 1)
    few, all_of_it = (split("classes", data, 10, size=size) for size in (600, 0))
    assert {(len(s.train), len(s.test)) for s in few} == {(600, 720)}
    for own, whole in zip(few, all_of_it, strict=True):
        assert np.isin(own.train, whole.train).all()
        assert np.array_equal(own.test, whole.test)
        assert set(np.bincount(data.train[own.train], minlength=10).tolist()) == {0, 100}
    with pytest.raises(ConfigError, match="asks for 1000 of each class; there are 480 per client"):
        split("classes", data, 10, size=6000)
    with pytest.raises(ConfigError, match="cannot be divided equally by 6 classes"):
        split("classes", data, 10, size=100)


def test_spfl_with_few_test_samples_keeps_its_training_data() -> None:
    data = labels(6000, 1)
    few, all_of_it = (split("classes", data, 10, tests=tests) for tests in (60, 0))
    for own, whole in zip(few, all_of_it, strict=True):
        assert np.array_equal(own.train, whole.train)
        assert np.isin(own.test, whole.test).all()
        assert set(np.bincount(data.train[own.test], minlength=10).tolist()) == {0, 10}
    with pytest.raises(ConfigError, match=r"partition.tests=726 asks for 121 of each class; there are 120 per client"):
        split("classes", data, 10, tests=726)
    with pytest.raises(ConfigError, match=r"partition.tests=50 cannot be divided equally by 6 classes"):
        split("classes", data, 10, tests=50)


def test_spfl_sizes_on_mnist_are_about_2880_and_720() -> None:
    data = Labels(np.repeat(np.arange(10), MNIST_CLASSES), np.arange(10), 10)
    for share in split("classes", data, 10):
        assert len(share.train) == pytest.approx(2880, rel=0.03)
        assert len(share.test) == pytest.approx(720, rel=0.03)


def test_fedamp_on_emnist() -> None:
    """62 clients in groups of 10, 26, 26 with 1000, 700, 400 samples; 80 % digits, capitals or small letters."""
    data = labels(per_class=1000, tests=200, classes=62)
    shares = split("practical", data, 62)
    assert [len(s.train) for s in shares] == [1000] * 10 + [700] * 26 + [400] * 26
    assert {len(s.test) for s in shares} == {100}
    for number, own in enumerate(groups_of(62)):
        for share in shares[sum((10, 26, 26)[:number]) :][: (10, 26, 26)[number]]:
            assert np.isin(data.pooled[share.train], own).sum() == (800, 560, 320)[number]
            assert np.isin(data.pooled[share.test], own).sum() == 80


def test_our_template_shrinks_to_a_small_dataset_but_keeps_its_proportions() -> None:
    data = labels(per_class=140, tests=36)
    shares = split("practical", data, 10)
    sizes = [len(s.train) for s in shares]
    assert sizes[0] < 600
    assert np.array(sizes[::2]) / sizes[0] == pytest.approx(np.array([6, 5, 4, 3, 2]) / 6, abs=0.02)
    dominating = np.isin(data.train[shares[0].train], [0, 1]).mean()
    assert dominating == pytest.approx(0.8, abs=0.01)


def test_the_coarse_labels_of_cifar100() -> None:
    assert np.bincount(CIFAR100_COARSE).tolist() == [5] * 20
    assert set(np.flatnonzero(CIFAR100_COARSE == 0).tolist()) == {4, 30, 55, 72, 95}  # aquatic mammals
    assert sorted(np.concatenate(groups_of(100)).tolist()) == list(range(100))


def test_table_7() -> None:
    assert {name: [len(c) for c in clusters] for name, clusters in TABLE.items() if name != "fmnist"} == {
        "cifar10": [4, 6],
        "stl10": [3, 7],
        "cifar100": [4, 7, 6, 4, 79],
    }
    for name, clusters in TABLE.items():
        assert sorted(label for c in clusters for label in c) == list(range(100 if name == "cifar100" else 10))


@pytest.mark.parametrize("name", ["sc-niid", "sc-dir"])
def test_super_cluster_clients_stay_in_their_cluster(name: str) -> None:
    """Every client's labels lie in one super cluster, every label is used, each cluster is dealt out completely."""
    data = labels(per_class=200)
    shares = split(name, data, 20)
    homes = [next(c for c in CLUSTERS if held(data, s) <= set(c)) for s in shares]
    assert [homes.count(c) for c in CLUSTERS] == [8, 12]  # in proportion to 4 and 6 classes
    assert set().union(*(held(data, s) for s in shares)) == set(range(10))
    assert sum(len(s.train) for s in shares) == 2000
    assert disjoint([s.train for s in shares])


def test_sc_niid_clients_hold_two_labels_and_are_tested_on_all_of_them() -> None:
    data = labels(per_class=100, tests=20)
    for share in split("sc-niid", data, 20):
        assert len(held(data, share)) == 2
        assert len(share.test) == 40


def test_the_official_codes_allocation() -> None:
    """1 + 4/10 and 1 + 6/10 of 100 clients, rounded up to 47 and 54, and one too many taken back."""
    data = labels(per_class=500)
    shares = split("sc-niid", data, 100, allocation="official-code")
    first = sum(held(data, s) <= set(CLUSTERS[0]) for s in shares)
    assert first in (46, 47)


@pytest.mark.parametrize("name", ["c-niid", "c-dir"])
def test_pseudo_clusters_are_random_groups_of_the_same_sizes(name: str) -> None:
    data = labels(per_class=200)
    shares = split(name, data, 20, pseudo_clusters=True)
    first, second = (set().union(*(held(data, s) for s in part)) for part in (shares[:8], shares[8:]))
    assert (len(first), len(second), first & second) == (4, 6, set())
    assert first != set(CLUSTERS[0])


def test_a_fifth_of_the_classes_where_there_are_many() -> None:
    data = labels(per_class=100, tests=1, classes=100)
    assert {len(held(data, s)) for s in split("c-niid", data, 20)} == {20}


@pytest.mark.parametrize("name", ["c-niid", "sc-niid", "c-dir", "sc-dir"])
def test_a_smaller_copy_of_a_split(name: str) -> None:
    """Fewer training samples in every class's proportion, and a random part of the test samples of each client."""
    data = labels(per_class=200, tests=20)
    shares = split(name, data, 20, size=50, tests=13)
    assert np.bincount(np.concatenate([data.train[s.train] for s in shares])).tolist() == [100] * 10
    assert {len(s.test) for s in shares} == {13}
    whole = split(name, data, 20, size=50)
    for some, own in zip(shares, whole, strict=True):
        assert np.array_equal(some.train, own.train)
        assert set(some.test.tolist()) < set(own.test.tolist())


def test_labels_chosen_by_hand() -> None:
    """Table 5's pairs: 500 samples each, and the first client's samples do not depend on its partner."""
    data = labels(per_class=600, tests=20)
    first, second = split("labels", data, 2, labels="8,9/9,0", size=500)
    assert [held(data, s) for s in (first, second)] == [{8, 9}, {9, 0}]
    assert np.bincount(data.train[first.train])[[8, 9]].tolist() == [250, 250]
    assert disjoint([first.train, second.train])
    assert [len(s.test) for s in (first, second)] == [40, 40]
    for partner in ("8,9", "3,5"):
        assert np.array_equal(split("labels", data, 2, labels=f"8,9/{partner}", size=500)[0].train, first.train)
    assert np.array_equal(split("labels", data, 1, labels="8,9", size=500)[0].train, first.train)


def test_labels_chosen_by_hand_are_given_out_whole_and_repeat() -> None:
    data = labels(per_class=60)
    shares = split("labels", data, 4, labels="0,1/2")
    assert [held(data, s) for s in shares] == [{0, 1}, {2}, {0, 1}, {2}]
    assert [len(s.train) for s in shares] == [60, 30, 60, 30]


def test_mix4() -> None:
    """14 + 32 + 26 + 28 clients of 500 samples, labels in the dataset's own decade, tested on the whole dataset."""
    data = side_by_side((7291, 50_000, 15_000, 60_000), (2007, 10_000, 4000, 10_000), MIX4.parts)
    shares = split("mix4", data, 100)
    assert {len(s.train) for s in shares} == {500}
    assert disjoint([s.train for s in shares])
    decades = [{label // 10 for label in held(data, s)} for s in shares]
    assert decades == [{0}] * 14 + [{1}] * 32 + [{2}] * 26 + [{3}] * 28
    assert [len(shares[i].test) for i in (0, 14, 46, 72)] == [2007, 10_000, 4000, 10_000]
    assert set(np.bincount(data.pooled[shares[14].train])[10:].tolist()) == {50}


def test_mix4_with_fewer_tests() -> None:
    data = side_by_side((300, 600, 500, 500), (30, 40, 50, 60), MIX4.parts)
    shares = split("mix4", data, 8, size=20, tests=7)
    assert {len(s.test) for s in shares} == {7}
    assert all(
        {label // 10 for label in data.pooled[s.test].tolist()} == {label // 10 for label in held(data, s)}
        for s in shares
    )


def test_mix4_draws_at_random_where_a_class_is_too_small_to_be_equal() -> None:
    data = side_by_side((7291, 50_000, 15_000, 60_000), (10, 10, 10, 10), MIX4.parts)
    usps = np.repeat(np.arange(10), [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644])
    data = Labels(np.concatenate([usps, data.train[7291:]]), data.test, 40, sources=data.sources, source=data.source)
    shares = split("mix4", data, 100)
    assert {len(s.train) for s in shares[:14]} == {500}
    assert disjoint([s.train for s in shares[:14]])


def test_users_are_never_split() -> None:
    data = labels()
    assert data.users is not None
    shares = split("by-user", data, 7)
    owners = [set(data.users[np.concatenate([s.train, s.test])].tolist()) for s in shares]
    assert sum(len(o) for o in owners) == len(set().union(*owners)) == 40


def test_users_without_official_tests_keep_a_fifth_for_testing() -> None:
    data = Labels(
        np.arange(50) % 5, np.zeros(1, np.int64), 5, users=np.array([*np.repeat(["a", "b", "c", "d", "e"], 10), "f"])
    )
    shares = split("by-user", data, 5)
    assert {(len(s.train), len(s.test)) for s in shares} == {(8, 2)}  # f has one sample, and is left out


def test_silos_with_their_own_files_use_all_of_them() -> None:
    data = labels()
    for share in split("own", data, 3):
        assert (len(share.train), len(share.test)) == (600, 200)


def test_rotations_turn_groups_of_clients() -> None:
    shares = split("feature-shift", labels(), 8)
    turned = ["", "rotate-90", "rotate-180", "rotate-270"]
    assert [s.transform for s in shares] == [name for name in turned for _ in range(2)]
    halves = split("feature-shift", labels(), 4, rotations=2)
    assert [s.transform for s in halves] == ["", "", "rotate-180", "rotate-180"]


def test_one_dataset_for_each_group() -> None:
    data = side_by_side((100, 200), (20, 40), ("a", "b"))
    shares = split("feature-shift", data, 4, by="source")
    assert [{label // 10 for label in held(data, s)} for s in shares] == [{0}, {0}, {1}, {1}]
    assert [len(s.train) for s in shares] == [50, 50, 100, 100]
