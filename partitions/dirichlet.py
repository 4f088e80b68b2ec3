"""How many samples of each class each client gets when Dirichlet draws spread the classes (NIID-Bench's procedure)."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from fedsim.partitions.allocation import Counts, apportion

ATTEMPTS = 100
Group = tuple[Counts, int]  # the sizes of its classes, and the number of clients that share them


def counts(
    groups: Sequence[Group], alpha: float, min_size: int, rng: np.random.Generator, balance: bool = True
) -> list[Counts]:
    """Clients x classes for each group, drawn again until every client has `min_size` samples.

    Raises ConfigError with the nearest settings that work if no draw gives every client enough.
    """
    seeds = rng.integers(2**32, size=len(groups)).tolist()

    def best(trial: float) -> list[Counts]:
        return [_best_draw(*group, trial, min_size, balance, seed) for group, seed in zip(groups, seeds, strict=True)]

    drawn = best(alpha)
    smallest = _smallest(drawn)
    if smallest >= min_size:
        return drawn
    works = [f"partition.min-size={smallest}"] if smallest else []
    if all(clients * min_size <= sizes.sum() for sizes, clients in groups):
        larger = (alpha * 2.0**doublings for doublings in range(1, 11))
        enough = (trial for trial in larger if _smallest(best(trial)) >= min_size)
        works += [f"partition.alpha={trial:g}" for trial in islice(enough, 1)]
    raise ConfigError(
        f"{ATTEMPTS} draws of Dirichlet({alpha:g}) never gave every client {min_size} samples; "
        f"the nearest that works is {' or '.join(works) or 'a smaller number of clients'}"
    )


def _smallest(drawn: Sequence[Counts]) -> int:
    return min(int(group.sum(axis=1).min()) for group in drawn)


def _best_draw(sizes: Counts, clients: int, alpha: float, min_size: int, balance: bool, seed: int) -> Counts:
    """The first draw that gives every client enough, else the one that came closest."""
    rng = np.random.default_rng(seed)
    best = _draw(sizes, clients, alpha, balance, rng)
    for _ in range(ATTEMPTS - 1):
        if _smallest([best]) >= min_size:
            break
        best = max(best, _draw(sizes, clients, alpha, balance, rng), key=lambda drawn: _smallest([drawn]))
    return best


def _draw(sizes: Counts, clients: int, alpha: float, balance: bool, rng: np.random.Generator) -> Counts:
    drawn = np.zeros((clients, len(sizes)), np.int64)
    for c, size in enumerate(sizes):
        weights = rng.dirichlet(np.full(clients, alpha))
        if balance:  # a client that holds an average share already gets nothing more
            weights = _restricted(weights, drawn.sum(axis=1) < sizes.sum() / clients)
        drawn[:, c] = apportion(int(size), weights)
    return drawn


def _restricted(weights: NDArray[np.float64], eligible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights of the eligible clients, or equal ones if a tiny alpha put all weight on clients that are not."""
    left = weights * eligible
    return left if left.sum() > 0 else eligible.astype(np.float64)
