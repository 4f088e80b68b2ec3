"""The probability simplex, entries of at least 0 with sum 1: the nearest point, and the least one of a quadratic form."""

import numpy as np

from fedsim.payload import Array

RIDGE = 1e-10  # relative; makes a form that vanishes in some direction definite
SLACK = 1e-9  # how far a weight's gradient must be below the others' for the weight to leave zero


def onto_simplex(rows: Array) -> Array:
    """For each row the nearest one with entries of at least 0 and sum 1 (Duchi et al. 2008)."""
    falling = -np.sort(-rows, axis=1)
    excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (falling > excess).sum(axis=1, keepdims=True) - 1
    nearest: Array = np.maximum(rows - np.take_along_axis(excess, last, axis=1), 0)
    return nearest


def least_on_simplex(form: Array) -> Array:
    """argmin a^T Q a over a >= 0, sum a = 1, for a symmetric positive semidefinite Q, by an active-set method.

    With x = a / (a^T Q a) this is min x^T Q x / 2 - sum x over x >= 0, a problem of non-negative least squares: entries
    leave zero one by one, steepest first, and return to zero when the optimum of the free ones is negative (Lawson and
    Hanson 1974, algorithm 23.10).
    """
    count, scale = len(form), float(np.trace(form)) / len(form)
    if scale <= 0:
        return np.full(count, 1 / count)
    form = form / scale + RIDGE * np.eye(count)
    x: Array = np.zeros(count)
    free: Array = np.zeros(count, bool)
    for _ in range(3 * count):
        slopes = np.where(free, -np.inf, 1 - form @ x)
        if slopes.max() <= SLACK:
            break
        free[slopes.argmax()] = True
        x, free = _optimum(form, x, free)
    weights: Array = x / x.sum()
    return weights


def _optimum(form: Array, x: Array, free: Array) -> tuple[Array, Array]:
    """The optimum over the free entries, and those of them that it leaves free."""
    while True:
        goal = np.zeros_like(x)
        goal[free] = np.linalg.solve(form[np.ix_(free, free)], np.ones(free.sum()))
        bad = free & (goal <= 0)
        if not bad.any():
            return goal, free
        x = x + np.min(x[bad] / (x[bad] - goal[bad])) * (goal - x)
        free = free & (x > 1e-12 * x.max())
        x = np.where(free, x, 0)
