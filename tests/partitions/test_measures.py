"""Angles, clusters, earth mover's distance, CKA and entropy on cases worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from fedsim.errors import ConfigError
from fedsim.partitions import measures
from fedsim.partitions.measures import Linkage, Mode
from fedsim.partitions.split import Clusters

MODES: tuple[Mode, ...] = ("min_entry", "principal", "ordered", "published")

# Eq. 2 between the classes of CIFAR-10 (raw pixels, p = 3), in degrees; the first row is the published one.
CIFAR10 = np.array(
    [
        [0.00, 6.83, 6.55, 8.65, 9.29, 10.48, 10.78, 7.56, 6.66, 8.99],
        [6.83, 0.00, 7.86, 9.14, 9.83, 11.18, 9.64, 8.23, 6.89, 5.73],
        [6.55, 7.86, 0.00, 4.14, 3.69, 6.36, 5.41, 3.66, 10.46, 11.28],
        [8.65, 9.14, 4.14, 0.00, 3.34, 3.79, 3.85, 4.82, 12.44, 13.05],
        [9.29, 9.83, 3.69, 3.34, 0.00, 4.50, 3.38, 4.65, 13.03, 13.64],
        [10.48, 11.18, 6.36, 3.79, 4.50, 0.00, 5.64, 7.43, 13.48, 15.29],
        [10.78, 9.64, 5.41, 3.85, 3.38, 5.64, 0.00, 5.40, 13.82, 13.33],
        [7.56, 8.23, 3.66, 4.82, 4.65, 7.43, 5.40, 0.00, 11.47, 10.67],
        [6.66, 6.89, 10.46, 12.44, 13.03, 13.48, 13.82, 11.47, 0.00, 7.44],
        [8.99, 5.73, 11.28, 13.05, 13.64, 15.29, 13.33, 10.67, 7.44, 0.00],
    ]
)
VEHICLES, ANIMALS = (0, 1, 8, 9), (2, 3, 4, 5, 6, 7)


def subspace(seed: int, p: int = 3, dim: int = 12) -> np.ndarray:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, p)))[0])


def angle(u: np.ndarray, v: np.ndarray, mode: Mode) -> float:
    return float(measures.proximity([u, v], mode)[0, 1])


@pytest.mark.parametrize("mode", MODES)
def test_the_same_subspace_is_at_angle_zero(mode: Mode) -> None:
    assert angle(subspace(0), subspace(0), mode) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("mode", "degrees"), [("min_entry", 90), ("principal", 90), ("ordered", 270), ("published", 270)]
)
def test_orthogonal_subspaces(mode: Mode, degrees: float) -> None:
    basis = np.eye(6)
    assert angle(basis[:, :3], basis[:, 3:], mode) == pytest.approx(degrees)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=30)
@given(seed=st.integers(0, 1000), column=st.integers(0, 2))
def test_the_sign_of_a_singular_vector_does_not_matter(mode: Mode, seed: int, column: int) -> None:
    u, v = subspace(seed), subspace(seed + 1)
    flipped = u.copy()
    flipped[:, column] *= -1
    assert angle(flipped, v, mode) == pytest.approx(angle(u, v, mode))


@given(st.integers(0, 1000))
def test_the_modes_are_ordered(seed: int) -> None:
    u, v = subspace(seed), subspace(seed + 1)
    assert angle(u, v, "principal") <= angle(u, v, "min_entry") + 1e-6  # the strict angle is the smallest
    assert angle(u, v, "published") == pytest.approx(3 * angle(u, v, "min_entry"))


def test_two_directions_by_hand() -> None:
    """u = (e1, e2), v turned by 30 degrees inside the plane: the planes agree, the vectors do not."""
    u, v = np.eye(3)[:, :2], np.array([[np.sqrt(3) / 2, -0.5], [0.5, np.sqrt(3) / 2], [0, 0]])
    assert [angle(u, v, mode) for mode in MODES] == pytest.approx([30, 0, 60, 60], abs=1e-5)


@pytest.mark.parametrize("shape", [(200, 3, 6, 6), (40, 300), (300, 8)])
def test_a_signature_is_the_truncated_svd(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8)
    exact = np.linalg.svd(measures.flat(x).T, full_matrices=False)[0][:, :3]
    found = measures.signature(x, 3)
    assert np.abs(np.sum(exact * found, axis=0)) == pytest.approx(np.ones(3), abs=1e-6)


def test_too_many_directions() -> None:
    with pytest.raises(ConfigError, match="2 samples of 5 values have no 3 directions; use 2 or fewer"):
        measures.signature(np.ones((2, 5)), 3)


@pytest.mark.parametrize(
    ("threshold", "clusters"),
    [(7, ((0, 8), (1, 9), ANIMALS)), (10, (VEHICLES, ANIMALS)), (12, (tuple(range(10)),)), (None, (VEHICLES, ANIMALS))],
)
def test_clusters_of_cifar10(threshold: float | None, clusters: Clusters) -> None:
    assert measures.cluster(CIFAR10, threshold) == clusters


@pytest.mark.parametrize(
    ("linkage", "low", "high"), [("wpgma", 7.54, 11.49), ("upgma", 7.54, 10.88), ("complete", 8.99, 15.28)]
)
def test_the_window_of_thresholds(linkage: Linkage, low: float, high: float) -> None:
    for threshold in (low, high):
        assert measures.cluster(CIFAR10, threshold, linkage) == (VEHICLES, ANIMALS)
    for threshold in (low - 0.02, high + 0.02):
        assert measures.cluster(CIFAR10, threshold, linkage) != (VEHICLES, ANIMALS)


@pytest.mark.parametrize(
    ("count", "clusters", "low", "high"),
    [(2, (VEHICLES, ANIMALS), 7.54, 11.50), (1, (tuple(range(10)),), 11.50, np.inf), (9, None, 3.34, 3.61)],
)
def test_a_number_of_clusters_and_the_thresholds_that_give_them(
    count: int, clusters: Clusters | None, low: float, high: float
) -> None:
    found, window = measures.cut_into(count, CIFAR10)
    assert len(found) == count
    assert clusters in (None, found)
    assert window == pytest.approx((low, high), abs=0.01)


def test_the_order_keeps_clusters_together() -> None:
    places = [measures.order_by_cluster(CIFAR10).index(label) for label in VEHICLES]
    assert max(places) - min(places) == 3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(3, 60), st.integers(3, 60))
def test_emd_is_scipys_along_the_pooled_directions(seed: int, first: int, second: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(first, 1)), rng.normal(1, 2, size=(second, 1))
    expected = wasserstein_distance(x[:, 0], y[:, 0]) / np.concatenate([x, y]).std()
    assert measures.Pooled([x, y]).emd()[0, 1] == pytest.approx(expected, abs=0.02)


def test_emd_by_hand() -> None:
    """{0, 2} and {1, 5}: half moves by 1, half by 3; the pooled deviation of {0, 1, 2, 5} is sqrt(3.5)."""
    x, y = np.array([[0.0], [2.0]]), np.array([[1.0], [5.0]])
    assert measures.Pooled([x, y]).emd()[0, 1] == pytest.approx(2 / np.sqrt(3.5))


def test_cka_between_clients_of_different_sizes() -> None:
    rng = np.random.default_rng(3)
    x, other = rng.normal(size=(50, 4)), rng.normal(size=(70, 4)) @ np.diag([9.0, 1, 1, 1])
    found = measures.Pooled([x, np.tile(3 * x, (2, 1)), other]).cka()
    assert found[0, 1] == pytest.approx(1)  # neither scale nor number matters
    k, m = (z - z.mean(axis=1, keepdims=True) for z in (x, other))
    exact = np.sum((k.T @ k) * (m.T @ m)) / np.linalg.norm(k.T @ k) / np.linalg.norm(m.T @ m)
    assert found[0, 2] == pytest.approx(exact)


def test_cka_between_representations() -> None:
    x = np.random.default_rng(4).normal(size=(30, 5))
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(5, 5)))[0]
    assert measures.representation_cka([x, 2 * x @ turn + 7])[0, 1] == pytest.approx(1)
    centered = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    assert measures.representation_cka([centered[:, :1], centered[:, 1:]])[0, 1] == pytest.approx(0)


def test_label_entropy_in_bits() -> None:
    counts = np.array([[8, 0, 0, 0], [4, 4, 0, 0], [2, 2, 2, 2], [6, 2, 0, 0]])
    assert measures.label_entropy(counts) == pytest.approx([0, 1, 2, 0.811278], abs=1e-6)
    assert not np.signbit(measures.label_entropy(counts)).any()  # 0.00 in tables, not -0.00
