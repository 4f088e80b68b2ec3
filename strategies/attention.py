"""Attention-inducing functions A of a squared distance x, with a scale sigma: increasing, concave, A(0) = 0.

exponential:  A(x) = 1 - exp(-x/sigma),   A'(x) = exp(-x/sigma) / sigma
scad:         A'(x) = clip((a - x/sigma) / (a - 1), 0, 1) / sigma,  a = 3.7: constant up to sigma, 0 from a * sigma on
mcp:          A'(x) = max(0, 1 - x/(g sigma)) / sigma,              g = 3: decreasing, 0 from g * sigma on

SCAD is by Fan and Li (2001), MCP by Zhang (2010). All three are scaled such that A'(0) = 1/sigma is their largest
slope, so a step size that suits one of them suits all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedsim.similarity import Matrix

SCAD, MCP = 3.7, 3.0


@dataclass(frozen=True)
class Attention:
    """A and sigma * A' as functions of x / sigma."""

    value: Callable[[Matrix], Matrix]
    slope: Callable[[Matrix], Matrix]


def _scad(t: Matrix) -> Matrix:
    bent = np.clip(t, 1, SCAD) - 1  # beyond the part with constant slope
    return np.minimum(t, 1) + bent - bent**2 / (2 * (SCAD - 1))


def _mcp(t: Matrix) -> Matrix:
    near = np.minimum(t, MCP)
    return near - near**2 / (2 * MCP)


ATTENTIONS: Mapping[str, Attention] = {
    "exponential": Attention(lambda t: -np.expm1(-t), lambda t: np.exp(-t)),
    "scad": Attention(_scad, lambda t: np.clip((SCAD - t) / (SCAD - 1), 0, 1)),
    "mcp": Attention(_mcp, lambda t: np.maximum(0, 1 - t / MCP)),
}
