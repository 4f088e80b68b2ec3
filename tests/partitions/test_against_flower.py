"""Where flwr-datasets has a partitioner for the same split, ours agrees with it.

Clients must be able to draw their split themselves, and flwr-datasets takes seconds and 250 MB to import, so it serves
here as the independent reference.
"""

from typing import Any

import numpy as np
import pytest

from tests.partitions.known import USERS, labels, split

pytestmark = pytest.mark.filterwarnings("default")  # flwr-datasets and what it imports use deprecated calls
CLIENTS = 20
DATA = labels(per_class=600, tests=100)


def counts(partitioner: Any) -> np.ndarray:
    """Clients x classes."""
    import datasets

    assert DATA.users is not None
    columns = {"label": DATA.train.tolist(), "user": DATA.users[: len(DATA.train)].tolist()}
    partitioner.dataset = datasets.Dataset.from_dict(columns)
    parts = [partitioner.load_partition(i)["label"] for i in range(partitioner.num_partitions)]
    return np.stack([np.bincount(np.array(part), minlength=10) for part in parts])


def ours(name: str, clients: int = CLIENTS, seed: int = 0, **params: Any) -> np.ndarray:
    shares = split(name, DATA, clients, seed, **params)
    return np.stack([np.bincount(DATA.train[share.train], minlength=10) for share in shares])


def test_iid() -> None:
    from flwr_datasets.partitioner import IidPartitioner

    assert counts(IidPartitioner(CLIENTS)).sum(axis=1).tolist() == ours("iid").sum(axis=1).tolist()


def test_shards() -> None:
    from flwr_datasets.partitioner import ShardPartitioner

    for found in (counts(ShardPartitioner(CLIENTS, "label", num_shards_per_partition=2)), ours("shards")):
        assert set(found.sum(axis=1).tolist()) == {300}
        assert set(found.ravel().tolist()) <= {0, 150, 300}  # 40 shards of 150, four in each class


def test_pathological() -> None:
    from flwr_datasets.partitioner import PathologicalPartitioner

    theirs = counts(PathologicalPartitioner(CLIENTS, "label", 2, class_assignment_mode="first-deterministic"))
    for found in (theirs, ours("pathological")):
        assert set(np.count_nonzero(found, axis=1).tolist()) == {2}
        assert found.sum(axis=0).tolist() == [600] * 10
        for column in found.T:  # equal parts to the holders
            assert np.ptp(column[column > 0]) <= 1


def test_dirichlet_has_the_same_law() -> None:
    from flwr_datasets.partitioner import DirichletPartitioner

    def evenness(found: np.ndarray) -> float:
        return float(((found / found.sum(axis=0)) ** 2).sum(axis=0).mean())

    theirs = [evenness(counts(DirichletPartitioner(CLIENTS, "label", 0.5, 5, True, seed=s))) for s in range(4)]
    mine = [evenness(ours("dirichlet", seed=s, alpha=0.5, min_size=5)) for s in range(4)]
    assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.15)


@pytest.mark.parametrize("law", ["linear", "square"])
def test_sizes(law: str) -> None:
    from flwr_datasets import partitioner

    theirs = counts({"linear": partitioner.LinearPartitioner, "square": partitioner.SquarePartitioner}[law](6))
    mine = sorted(ours("quantity", 6, law=law, min_size=1).sum(axis=1).tolist())
    assert mine == pytest.approx(sorted(theirs.sum(axis=1).tolist()), abs=8)


def test_natural_ids() -> None:
    from flwr_datasets.partitioner import NaturalIdPartitioner

    theirs = counts(NaturalIdPartitioner("user"))
    mine = ours("by-user", USERS)
    assert sorted(map(tuple, theirs.tolist())) == sorted(map(tuple, mine.tolist()))
