"""Settings compared over clients: paired signed-rank tests, and Holm's correction for many of them.

Two settings are compared client by client, each at its own best round, over all seeds they share.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedsim.report.groups import Group

MANY = 20  # settings on the same data from which each is only compared with the best of them


def signed_rank(one: Sequence[float], two: Sequence[float]) -> float:
    """Wilcoxon's two-sided p for pairs; clients that do not differ are left out, as Wilcoxon did."""
    differences = np.asarray(one) - np.asarray(two)
    differences = np.round(
        differences[np.abs(differences) > 1e-12], 12
    )  # equal steps of accuracy tie, whatever the rounding
    if not len(differences):
        return 1.0
    from scipy.stats import wilcoxon  # slow to import, and every command would pay for it

    return float(wilcoxon(differences).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction: what each p becomes when all of them are looked at."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(np.argsort(ps, kind="stable").tolist()):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def winners(found: Sequence[Group]) -> dict[str, int]:
    """Data -> the setting with the best BMTA on it, the first of equal ones."""
    best: dict[str, int] = {}
    scores = [group.best().mean for group in found]
    for place, (each, score) in enumerate(zip(found, scores, strict=True)):
        if score is not None and (each.data not in best or score > (scores[best[each.data]] or 0.0)):
            best[each.data] = place
    return best


def pairwise(found: Sequence[Group]) -> dict[tuple[int, int], tuple[float, float]]:
    """For each pair of settings on the same data with clients in common: p, and p after Holm's correction over all pairs."""
    ps: dict[tuple[int, int], float] = {}
    for data, best in winners(found).items():
        places = [place for place, each in enumerate(found) if each.data == data]
        for i, j in combinations(places, 2):
            if len(places) > MANY and best not in (i, j):
                continue
            one, two = found[i].clients, found[j].clients
            if common := sorted(one.keys() & two.keys()):
                ps[i, j] = signed_rank([one[key] for key in common], [two[key] for key in common])
    return {pair: (p, q) for (pair, p), q in zip(ps.items(), holm(list(ps.values())), strict=True)}


def against_winners(found: Sequence[Group]) -> list[float | None]:
    """For each setting, the corrected p of its difference to the best one on the same data; None for that one itself."""
    best, tests = winners(found), pairwise(found)
    pairs = [tuple(sorted((place, best.get(each.data, place)))) for place, each in enumerate(found)]
    return [tests[a, b][1] if (a, b) in tests else None for a, b in pairs]
