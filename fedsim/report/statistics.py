"""Methods compared over clients: BMTA, paired signed-rank tests, and Holm's correction for many of them.

BMTA is the best mean testing accuracy: the highest point of a run's curve of mean client accuracy. Runs that differ only in
their seed are repetitions of one method. Two methods are compared client by client, each at its own best round, over all
seeds they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedsim.report.runs import Run, labels

Values = NDArray[np.float64]
ASIDE = ("seed", "workers", "worker-gpus", "checkpoint-every", "timeout", "data-root", "device")  # not part of a method
LAW = ("dataset", "partition", "clients")  # what must agree for clients to be the same clients


@dataclass(frozen=True)
class Method:
    """Repetitions of one configuration."""

    name: str
    runs: Sequence[Run]
    kind: str = "personal"

    @property
    def bmta(self) -> Values:
        """One value per repetition."""
        return np.array([run.series(self.kind).mean.max() for run in self.runs])

    @property
    def final(self) -> Values:
        return np.array([run.series(self.kind).mean[-1] for run in self.runs])

    def clients(self) -> dict[tuple[str, int, int], float]:
        """(data, seed, client) -> accuracy in the round of the BMTA, as far as it was measured."""
        found: dict[tuple[str, int, int], float] = {}
        for run in self.runs:
            series, config = run.series(self.kind), run.config
            data = repr([(k, v) for k, v in sorted(config.items()) if k in LAW or k.startswith("partition.")])
            best = series.values[int(series.mean.argmax())]
            found |= {(data, int(config["seed"]), c): float(v) for c, v in zip(run.clients, best, strict=True)}
        return {key: value for key, value in found.items() if not np.isnan(value)}


def methods(runs: Sequence[Run], kind: str = "personal") -> list[Method]:
    """Runs by what they did, in the order they came; those without this kind of accuracy are left out."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if len(run.series(kind).rounds):
            groups.setdefault(repr(sorted((k, v) for k, v in run.config.items() if k not in ASIDE)), []).append(run)
    names = labels([group[0] for group in groups.values()])
    return [Method(name, group, kind) for name, group in zip(names, groups.values(), strict=True)]


def signed_rank(one: Sequence[float], two: Sequence[float]) -> float:
    """Wilcoxon's two-sided p for pairs; clients that do not differ are left out, as Wilcoxon did."""
    differences = np.asarray(one) - np.asarray(two)
    differences = np.round(
        differences[np.abs(differences) > 1e-12], 12
    )  # equal steps of accuracy tie, whatever the rounding
    return float(stats.wilcoxon(differences).pvalue) if len(differences) else 1.0


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction: what each p becomes when all of them are looked at."""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(np.argsort(ps, kind="stable").tolist()):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def pairwise(found: Sequence[Method]) -> dict[tuple[int, int], tuple[float, float]]:
    """For each pair of methods with clients in common: p, and p after Holm's correction over all pairs."""
    measured = [method.clients() for method in found]
    ps: dict[tuple[int, int], float] = {}
    for i, j in combinations(range(len(found)), 2):
        if common := sorted(measured[i].keys() & measured[j].keys()):
            ps[i, j] = signed_rank([measured[i][key] for key in common], [measured[j][key] for key in common])
    return {pair: (p, q) for (pair, p), q in zip(ps.items(), holm(list(ps.values())), strict=True)}
