"""How many samples of each class each client gets when every class is spread by a Dirichlet draw (NIID-Bench's procedure)."""

import copy

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from partitions.deal import Counts, whole

ATTEMPTS = 100


def counts(
    sizes: Counts, clients: int, alpha: float, min_size: int, rng: np.random.Generator, balance: bool = True
) -> Counts:
    """Clients x classes. Redrawn until everybody has `min_size` samples; if that never happens, says what would."""
    total = int(sizes.sum())
    if clients * min_size > total:
        raise ConfigError(
            f"{total} samples cannot give each of {clients} clients {min_size}; "
            f"the nearest that works is partition.min-size={total // clients} or clients={total // max(1, min_size)}"
        )
    untouched = copy.deepcopy(rng)
    best = 0
    for _ in range(ATTEMPTS):
        drawn = _draw(sizes, clients, alpha, balance, rng)
        smallest = int(drawn.sum(axis=1).min())
        if smallest >= min_size:
            return drawn
        best = max(best, smallest)
    works = [f"partition.min-size={best}"] if best else []
    if (larger := _alpha_that_works(sizes, clients, alpha, min_size, balance, untouched)) is not None:
        works.append(f"partition.alpha={larger:g}")
    raise ConfigError(
        f"{ATTEMPTS} draws of Dirichlet({alpha:g}) never gave each of {clients} clients {min_size} samples; "
        f"the nearest that works is {' or '.join(works) or 'a smaller number of clients'}"
    )


def _draw(sizes: Counts, clients: int, alpha: float, balance: bool, rng: np.random.Generator) -> Counts:
    drawn = np.zeros((clients, len(sizes)), np.int64)
    for c, size in enumerate(sizes):
        weights = rng.dirichlet(np.full(clients, alpha))
        if balance:  # who already holds an average share gets nothing more
            weights = _only(weights, drawn.sum(axis=1) < sizes.sum() / clients)
        drawn[:, c] = whole(int(size), weights)
    return drawn


def _only(weights: NDArray[np.float64], open_to: NDArray[np.bool_]) -> NDArray[np.float64]:
    """A tiny alpha puts all weight on one client; if that one is full, the others share equally."""
    left = weights * open_to
    return left if left.sum() > 0 else open_to.astype(np.float64)


def _alpha_that_works(
    sizes: Counts, clients: int, alpha: float, min_size: int, balance: bool, rng: np.random.Generator
) -> float | None:
    """The first doubling of alpha under which the same random numbers succeed."""
    for doublings in range(1, 21):
        larger, fresh = alpha * 2**doublings, copy.deepcopy(rng)
        for _ in range(ATTEMPTS):
            if _draw(sizes, clients, larger, balance, fresh).sum(axis=1).min() >= min_size:
                return larger
    return None
