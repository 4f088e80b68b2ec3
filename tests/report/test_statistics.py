"""Signed-rank tests and Holm's correction on known samples, and methods made of runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedsim.cli import main
from fedsim.config import RunConfig
from fedsim.report.runs import RunResult
from fedsim.report.settings import group_by_setting
from fedsim.report.statistics import holm, p_against_best, pairwise_tests, signed_rank

Finished = Callable[..., dict[str, Any]]


def test_known_samples() -> None:
    """Conover's data, with SciPy's own documentation as the witness."""
    differences = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
    assert signed_rank(differences, [0] * 15) == pytest.approx(0.041259765625)
    rng = np.random.default_rng(0)
    one, two = rng.random(30), rng.random(30)
    assert signed_rank(one, two) == pytest.approx(stats.wilcoxon(one, two).pvalue)


def test_ties_and_zeros() -> None:
    one, two = [0.9, 0.8, 0.7, 0.5, 0.5, 0.2], [0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    tied = stats.wilcoxon([1, 1, 1, 1, -1]).pvalue
    assert signed_rank(one, two) == pytest.approx(tied)
    assert signed_rank(one, one) == 1.0
    assert signed_rank([0.1], [0.2]) == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.fixture
def folders(small: Callable[..., RunConfig], finished: Finished, tmp_path: Path) -> list[Path]:
    for algorithm in ("fedavg", "local"):
        for seed in (0, 1):
            finished(small(f"algorithm={algorithm}", f"seed={seed}"), name=f"{algorithm}-{seed}")
    finished(small("algorithm=local", "partition=iid"), name="elsewhere")
    return [tmp_path / n for n in ("fedavg-0", "fedavg-1", "local-0", "local-1")]


def test_seeds_are_repetitions_and_other_data_is_not_compared(folders: list[Path], tmp_path: Path) -> None:
    runs = [RunResult.load(folder) for folder in folders]
    found = group_by_setting(runs)
    assert [(each.label, len(each.runs)) for each in found] == [("fedavg", 2), ("local", 2)]
    best = [run.series("personal").mean.max() for run in runs]
    assert found[1].best().mean == pytest.approx((best[2] + best[3]) / 2)
    assert len(found[0].clients) == 8
    assert set(pairwise_tests(found)) == {(0, 1)}
    assert set(p_against_best(found)) == {None, pairwise_tests(found)[0, 1][1]}
    assert pairwise_tests(group_by_setting([runs[0], RunResult.load(tmp_path / "elsewhere")])) == {}


def test_reports_show_them(folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *map(str, folders), "--plot", str(tmp_path / "plots")]) == 0
    text = capsys.readouterr().out
    for words in ("BMTA", "p vs best", " ± ", "Holm", "aggregation s"):
        assert words in text
    assert (tmp_path / "plots" / "accuracy-distribution.png").stat().st_size > 10_000
