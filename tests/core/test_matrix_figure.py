"""Heat maps of recorded matrices."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.matrices import Matrices
from fedsim.report.matrices import load, matrix_figure, mean_between, order_by_data, spread_over
from fedsim.report.runs import Run


def run(folder: Path) -> Run:
    labels = [[9, 1, 0], [0, 0, 9], [8, 2, 0], [0, 1, 9]]
    clients = [{"id": i, "train": 10, "test": 5, "labels": row} for i, row in enumerate(labels)]
    return Run(folder, {"config": {"algorithm": "spfl"}, "clients": clients}, [])


def test_similar_clients_stand_side_by_side(tmp_path: Path) -> None:
    order = order_by_data(run(tmp_path))
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_a_picture_only_if_something_was_recorded(tmp_path: Path) -> None:
    assert not matrix_figure(run(tmp_path), tmp_path / "heat.png")
    kept = Matrices(tmp_path)
    for number in (1, 11):
        kept.keep(number, {"base": np.eye(4) * number, "head": np.ones((4, 4))})
    assert matrix_figure(run(tmp_path), tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 10_000
    assert matrix_figure(run(tmp_path), tmp_path / "one.png", rounds=[11])


def test_means_are_over_different_clients_and_follow_the_rounds(tmp_path: Path) -> None:
    kept = Matrices(tmp_path)
    kept.keep(1, {"base": np.array([[1, 0.2], [0.4, 1]]), "head": np.eye(2)})
    kept.keep(11, {"base": np.array([[1, 0.5], [0.7, 1]]), "head": -np.ones((2, 2))})
    found = load(run(tmp_path))
    assert mean_between(found, "base") == pytest.approx([0.3, 0.6])
    assert mean_between(found, "head") == [0, -1]


def test_rounds_are_spread_with_both_ends() -> None:
    assert spread_over([1, 11, 21, 31, 41, 51], 4) == [1, 21, 31, 51]
    assert spread_over([7], 4) == [7]
