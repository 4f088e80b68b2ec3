"""Robust aggregators against the functions of Flower's own strategies, which are slower or need whole messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
from flwr.serverapp.strategy.multikrum import compute_distances, select_multikrum

from fedsim.aggregators.krum import scores
from fedsim.similarity import distances_of, gram
from fedsim.weights import BLOCK
from tests.test_robust_aggregators import drawn, made


def test_the_trimmed_mean() -> None:
    vectors = drawn(9, BLOCK + 5)
    expected = trim_mean(np.stack(vectors).astype(np.float64), 0.25)
    np.testing.assert_allclose(made("trimmed-mean", trim=0.25)(vectors, [1] * 9), expected, atol=1e-6)


def contents(vectors: Sequence[Any]) -> list[RecordDict]:
    return [RecordDict({"arrays": ArrayRecord({"w": Array(v.astype(np.float64))})}) for v in vectors]


@pytest.mark.parametrize(("malicious", "selected"), [(1, 1), (2, 3), (3, 6)])
def test_krum_chooses_as_flower_does(malicious: int, selected: int) -> None:
    vectors = drawn(9, 40) + [10 + v for v in drawn(2, 40, seed=1)]
    sent = contents(vectors)
    chosen = select_multikrum(sent, malicious, selected)
    places = [next(i for i, content in enumerate(sent) if content is each) for each in chosen]
    weights = np.arange(1.0, 12.0)
    found = made("multi-krum", malicious=malicious, selected=selected)(vectors, weights.tolist())
    expected = np.average(np.stack(vectors)[places], axis=0, weights=weights[places])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    ours = distances_of(gram(vectors))
    np.testing.assert_allclose(ours, compute_distances([c["arrays"] for c in sent]), rtol=1e-5, atol=1e-9)
    if selected == 1:
        assert made("krum", malicious=malicious)(vectors, weights.tolist()) == pytest.approx(vectors[places[0]])


def test_bulyan() -> None:
    vectors = drawn(8, BLOCK + 7)
    distances, left, chosen = distances_of(gram(vectors)), list(range(8)), list[int]()
    while len(chosen) < 6:
        chosen.append(left.pop(int(np.argmin(scores(distances[np.ix_(left, left)], 1)))))
    layers = [[vectors[k]] for k in chosen]
    [expected] = aggregate_n_closest_weights([np.median([v for [v] in layers], axis=0)], layers, 4)
    np.testing.assert_allclose(made("bulyan", malicious=1)(vectors, [1] * 8), expected, atol=1e-5)
