"""Heat maps of recorded matrices."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.report.matrix_figure import (
    evenly_spaced,
    load_matrices,
    matrix_figure,
    mean_off_diagonal,
    order_by_labels,
)
from fedsim.report.relations import group_table, groups_by_data, inside_and_outside
from fedsim.report.runs import RunResult
from fedsim.results.matrices import Matrices

LABELS = [[9, 1, 0], [0, 0, 9], [8, 2, 0], [0, 1, 9]]


def run(folder: Path, labels: list[list[int]] = LABELS) -> RunResult:
    clients = [{"id": i, "train": 10, "test": 5, "labels": row} for i, row in enumerate(labels)]
    return RunResult(folder, {"config": {"algorithm": "spfl"}, "clients": clients}, [])


def test_similar_clients_stand_side_by_side(tmp_path: Path) -> None:
    order = order_by_labels(run(tmp_path))
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_groups_are_those_who_have_much_of_the_same(tmp_path: Path) -> None:
    assert groups_by_data(run(tmp_path)) == [0, 1, 0, 1]
    assert groups_by_data(run(tmp_path, [*LABELS, [5, 5, 0]])) is None, "the last one has no companion"
    assert groups_by_data(run(tmp_path, [[9, 1, 0], [8, 0, 1]])) is None, "one group only"
    assert groups_by_data(run(tmp_path, [[], []])) is None, "a regression has no classes"


def test_inside_and_between_groups() -> None:
    matrix = np.array([[7, 1, 4, 2], [1, 7, 3, 5], [6, 2, 7, 1], [1, 4, 2, 7]], np.float64)
    assert inside_and_outside(matrix, [0, 1, 0, 1]) == ((4 + 6 + 5 + 4) / 4, (1 + 2 + 1 + 3 + 2 + 1 + 1 + 2) / 8)


def test_the_table_of_groups(tmp_path: Path) -> None:
    assert group_table([run(tmp_path)]) is None, "nothing recorded"
    kept = Matrices(tmp_path)
    for number in range(1, 10):
        kept.keep(number, {"xi": np.kron(np.ones((2, 2)), [[number, 1], [1, number]])})
    table = group_table([run(tmp_path)])
    assert table is not None
    assert [list(column.cells) for column in table.columns][1:] == [["xi"], ["1.00 (1)"], ["5.00 (5)"], ["9.00 (9)"]]
    assert matrix_figure(run(tmp_path), tmp_path / "heat.png")
    assert group_table([run(tmp_path, [[9, 1, 0], [8, 0, 1], [9, 0, 0], [9, 0, 0]])]) is None, "no groups"


def test_a_figure_only_if_something_was_recorded(tmp_path: Path) -> None:
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
    found = load_matrices(run(tmp_path))
    assert mean_off_diagonal(found, "base") == pytest.approx([0.3, 0.6])
    assert mean_off_diagonal(found, "head") == [0, -1]


def test_rounds_are_spread_with_both_ends() -> None:
    assert evenly_spaced([1, 11, 21, 31, 41, 51], 4) == [1, 21, 31, 51]
    assert evenly_spaced([7], 4) == [7]
