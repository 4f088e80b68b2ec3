"""Matrices between clients: kept as they change, and rewound when a run is resumed."""

from pathlib import Path

import numpy as np

from fedsim.files import read_npz
from fedsim.results.matrices import Matrices, matrix_files


def test_only_changes_are_written(tmp_path: Path) -> None:
    kept, weights = Matrices(tmp_path), np.eye(2)
    kept.keep(1, {})
    kept.keep(2, {"weights": weights})
    kept.keep(3, {"weights": weights})
    weights[0, 1] = 0.5  # in place, as a strategy may
    kept.keep(4, {"weights": weights})
    kept.keep(5, {"weights": weights, "more": weights})
    assert list(matrix_files(tmp_path)) == [2, 4, 5]
    assert read_npz(matrix_files(tmp_path)[4])["weights"].tolist() == [[1, 0.5], [0, 1]]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    first = Matrices(tmp_path)
    for number in (1, 2, 3):
        first.keep(number, {"weights": np.full((2, 2), float(number))})
    again = Matrices(tmp_path)
    again.rewind(2)
    again.keep(3, {"weights": np.full((2, 2), 2.0)})  # as after round 2: nothing new
    assert list(matrix_files(tmp_path)) == [1, 2]


def test_without_a_folder_nothing_is_kept() -> None:
    nowhere = Matrices(None)
    nowhere.keep(1, {"weights": np.eye(2)})
    nowhere.rewind(0)
