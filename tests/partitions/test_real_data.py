"""The published numbers, on the real datasets: run where $FEDSIM_DATA holds them."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedsim import config as configs
from fedsim.errors import ConfigError
from fedsim.partitions import datasets, measures, superclusters
from fedsim.partitions.class_angles import angles
from fedsim.partitions.client_data import client_data, shares
from fedsim.partitions.summary import summarize

ROOT = Path(os.environ.get("FEDSIM_DATA", ""))
VEHICLES, ANIMALS = (0, 1, 8, 9), (2, 3, 4, 5, 6, 7)


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if not os.environ.get("FEDSIM_DATA") or not (ROOT / f"{name}.npz").is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}.npz below $FEDSIM_DATA")


pytestmark = pytest.mark.realdata


@needs("cifar10")
def test_the_classes_of_cifar10() -> None:
    """The published row of class 0 (raw pixels, p = 3), and the super clusters at 10 degrees."""
    angles = superclusters.class_angles(datasets.load("cifar10"))
    assert angles[0] == pytest.approx([0, 6.83, 6.55, 8.65, 9.29, 10.48, 10.78, 7.56, 6.66, 8.99], abs=0.01)
    assert measures.cluster(angles, 10) == (VEHICLES, ANIMALS)
    assert measures.cluster(angles) == (VEHICLES, ANIMALS)


@needs("cifar10")
def test_mean_client_distances_are_ordered() -> None:
    """Table 3's order on 100 clients: IID < C-NIID(2) < SC-NIID(2), under all four measures."""
    base = ["dataset=cifar10", "clients=100"]
    iid, c, sc = (summarize(configs.read(None, [*base, f"partition={p}"])) for p in ("iid", "c-niid", "sc-niid"))
    for key in ("eq2", "eq3", "emd", "1-cka"):
        assert iid.mean_distance(key) < c.mean_distance(key) < sc.mean_distance(key), key


@needs("cifar10")
def test_spfl_sizes_of_cifar10() -> None:
    split = shares(configs.read(None, ["dataset=cifar10", "partition=classes"]))
    assert {(len(s.train), len(s.test)) for s in split} == {(2400, 600)}


@needs("mnist")
def test_spfl_sizes_of_mnist() -> None:
    for share in shares(configs.read(None, ["dataset=mnist", "partition=classes"])):
        assert (len(share.train), len(share.test)) == pytest.approx((2880, 720), rel=0.03)


@needs("usps", "cifar10", "svhn", "fmnist")
def test_mix4() -> None:
    config = configs.read(None, ["dataset=mix4", "partition=mix4", "clients=100"])
    split = shares(config)
    assert {len(s.train) for s in split} == {500}
    together = np.concatenate([s.train for s in split])
    assert len(np.unique(together)) == 50_000
    data = client_data(config, 99)
    assert data.x_train.shape == (500, 3, 32, 32)
    assert set(data.y_train.tolist()) == set(range(30, 40))


@needs("usps", "cifar10", "svhn", "fmnist")
def test_dataset_angles() -> None:
    """Table 1, all six pairs."""
    found = angles(datasets.load("mix4"))
    assert found.names == ("usps", "cifar10", "svhn", "fmnist")
    assert len(found.published) == 6
    for pair, degrees in found.published.items():
        assert found.eq2[pair] == pytest.approx(degrees, abs=1.5)


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in superclusters.TABLE])
def test_super_clusters(name: str) -> None:
    """Table 7 from the data; Fashion-MNIST's from the authors' code."""
    found = angles(datasets.load(name))
    groups, _ = found.as_many
    assert {*groups} == {tuple(sorted(group)) for group in found.known}


@needs("emnist-byclass")
def test_a_subset_of_emnist_is_too_small_for_fedamp_and_says_what_fits() -> None:
    base = ["dataset=emnist-byclass", "partition=practical", "clients=62"]
    if len(datasets.load("emnist-byclass").labels.train) > 600_000:
        assert [len(s.train) for s in shares(configs.read(None, base))] == [1000] * 10 + [700] * 26 + [400] * 26
        return
    with pytest.raises(ConfigError, match=r"nearest that works is partition\.sizes="):
        shares(configs.read(None, base))
