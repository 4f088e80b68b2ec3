"""Which classes look alike: published, discovered on any dataset, or spelled out."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.errors import ConfigError
from fedsim.partitions import datasets, superclusters


@pytest.fixture
def planted(tmp_path: Path) -> datasets.Dataset:
    """Six classes; the even ones are variations of one image, the odd ones of another."""
    rng = np.random.default_rng(0)
    bases = rng.integers(0, 200, (2, 8, 8))
    y = np.arange(300) % 6
    variations = rng.integers(0, 40, (6, 8, 8))
    x = (bases[y % 2] + variations[y] + rng.integers(0, 15, (300, 8, 8))).astype(np.uint8)
    np.savez(tmp_path / "planted.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return datasets.load("planted", str(tmp_path))


def test_planted_clusters_are_found(planted: datasets.Dataset) -> None:
    assert superclusters.of(planted) == ((0, 2, 4), (1, 3, 5))


def test_a_threshold_below_every_angle_leaves_all_classes_alone(planted: datasets.Dataset) -> None:
    assert superclusters.discover(planted, threshold=0.01) == tuple((label,) for label in range(6))


def test_the_embedded_digits_fall_into_groups() -> None:
    clusters = superclusters.discover(datasets.load("digits"))
    assert sorted(label for cluster in clusters for label in cluster) == list(range(10))
    assert 2 <= len(clusters) <= 5


def test_published_clusters_come_first_unless_discovery_is_asked_for(tmp_path: Path, planted: datasets.Dataset) -> None:
    x, y = np.zeros((20, 32, 32, 3), np.uint8), np.arange(20) % 10
    np.savez(
        tmp_path / "cifar10.npz", x_train=x + y[:, None, None, None].astype(np.uint8), y_train=y, x_test=x, y_test=y
    )
    cifar10 = datasets.load("cifar10", str(tmp_path))
    assert superclusters.of(cifar10) == ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))
    assert superclusters.of(planted, "0,1/2,3,4,5") == ((0, 1), (2, 3, 4, 5))


def test_a_class_without_samples_has_no_cluster(tmp_path: Path) -> None:
    x, y = np.ones((20, 4, 4), np.uint8), np.arange(20) % 2 * 2
    np.savez(tmp_path / "gap.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(ConfigError, match="class 1 of gap has no training samples"):
        superclusters.discover(datasets.load("gap", str(tmp_path)), p=1)


def test_clusters_can_be_spelled_out() -> None:
    assert superclusters.parse("0,1/2,3,4", 5) == ((0, 1), (2, 3, 4))
    for wrong in ("0,1/2,3", "0,1/1,2,3,4", "nonsense"):
        with pytest.raises(ConfigError, match="0 to 4 once"):
            superclusters.parse(wrong, 5)
