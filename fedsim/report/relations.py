"""The groups that clients form by their labels, and how much more a run related clients inside a group than others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from fedsim.files import read_npz
from fedsim.report.runs import RunResult, display_names
from fedsim.results.matrices import matrix_files

Matrix = NDArray[np.float64]


def groups_by_data(run: RunResult) -> list[int] | None:
    """The group of every client: clients with more than an even share of the same classes form one.

    None if a client is alone in its group, if all clients form one group, or if there are no classes.
    """
    counts = np.array([client["labels"] for client in run.manifest["clients"]], np.float64)
    if counts.shape[1] == 0:
        return None
    even = counts.sum(axis=1, keepdims=True) / counts.shape[1]
    dominating = [tuple(np.flatnonzero(row).tolist()) for row in counts > even]
    names = list(dict.fromkeys(dominating))
    alone = any(dominating.count(name) == 1 for name in names)
    return None if alone or len(names) < 2 else [names.index(own) for own in dominating]


def inside_and_outside(matrix: Matrix, groups: Sequence[int]) -> tuple[float, float]:
    """Mean entry between different clients of one group, and between clients of different groups."""
    same = np.equal.outer(groups, groups)
    inside = same & ~np.eye(len(groups), dtype=bool)
    return float(np.mean(matrix[inside])), float(np.mean(matrix[~same]))


def group_table(runs: Sequence[RunResult]) -> Table | None:
    """The mean entry inside groups over the mean entry between them, without the diagonal.

    Of the first, the middle and the last recorded round; None if no run has both matrices and groups.
    """
    table = Table(title="recorded matrices: inside groups of clients with like labels / between them")
    for column in ("run", "matrix", "first (round)", "halfway (round)", "last (round)"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, run in zip(display_names(runs), runs, strict=True):
        groups, paths = groups_by_data(run), matrix_files(run.folder)
        if groups is None or not paths:
            continue
        rounds = list(paths)
        shown = {number: read_npz(paths[number]) for number in (rounds[0], rounds[len(rounds) // 2], rounds[-1])}
        for matrix in shown[rounds[-1]]:
            pairs = [inside_and_outside(each[matrix], groups) for each in shown.values()]
            cells = [f"{a / (b or np.nan):.2f} ({number})" for number, (a, b) in zip(shown, pairs, strict=True)]
            table.add_row(name, matrix, *cells)
    return table if table.row_count else None
