"""Settings compared over clients: paired Wilcoxon signed-rank tests with Holm's correction.

Two settings are compared client by client, each in its own best round, over all seeds that both have.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedsim.report.settings import Setting

MANY = 20  # with more settings on the same data, each is only compared with the best of them


def signed_rank(one: Sequence[float], two: Sequence[float]) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test for pairs. Pairs without a difference are left out."""
    differences = np.asarray(one) - np.asarray(two)
    # rounded, so that equal differences are ties in spite of floating point errors
    differences = np.round(differences[np.abs(differences) > 1e-12], 12)
    if not len(differences):
        return 1.0
    from scipy.stats import wilcoxon  # slow to import

    return float(wilcoxon(differences).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values for multiple tests."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(np.argsort(ps, kind="stable").tolist()):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def best_settings(settings: Sequence[Setting]) -> dict[str, int]:
    """`Setting.data` -> the index of the setting with the best mean on it, the first of equal ones."""
    scores: dict[str, list[tuple[float, int]]] = {}
    for index, each in enumerate(settings):
        if (score := each.best().mean) is not None:
            scores.setdefault(each.data, []).append((-score if each.metric.higher_is_better else score, index))
    return {data: min(found)[1] for data, found in scores.items()}


def pairwise_tests(settings: Sequence[Setting]) -> dict[tuple[int, int], tuple[float, float]]:
    """(i, j) -> p-value, and p-value after Holm's correction over all pairs; for settings with common clients."""
    ps: dict[tuple[int, int], float] = {}
    for data, best in best_settings(settings).items():
        same_data = [index for index, each in enumerate(settings) if each.data == data]
        for i, j in combinations(same_data, 2):
            if len(same_data) > MANY and best not in (i, j):
                continue
            one, two = settings[i].clients, settings[j].clients
            if common := sorted(one.keys() & two.keys()):
                ps[i, j] = signed_rank([one[key] for key in common], [two[key] for key in common])
    return {pair: (p, q) for (pair, p), q in zip(ps.items(), holm(list(ps.values())), strict=True)}


def p_against_best(settings: Sequence[Setting]) -> list[float | None]:
    """For each setting, the corrected p-value against the best setting on the same data; None for the best one."""
    best, tests = best_settings(settings), pairwise_tests(settings)
    pairs = [tuple(sorted((index, best.get(each.data, index)))) for index, each in enumerate(settings)]
    return [tests[a, b][1] if (a, b) in tests else None for a, b in pairs]
