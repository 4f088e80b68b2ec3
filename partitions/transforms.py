"""Transforms of a client's samples, by name: a split with feature shift gives each group of clients another one.

A transform maps a batch (N x sample shape, as stored) to a batch of the same shape, and raises ConfigError for samples
that it cannot treat.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from fedsim.errors import ConfigError, unknown
from fedsim.partitions.split import Array

Transform = Callable[[Array], Array]


def apply(name: str, x: Array) -> Array:
    """The batch `x` under the transform of this name; unchanged for the empty name."""
    if name and name not in TRANSFORMS:
        unknown("transform", name, TRANSFORMS)
    return TRANSFORMS[name](x) if name else x


def rotation(degrees: int) -> str:
    """The name of the counter-clockwise rotation by 0, 90, 180 or 270 degrees."""
    return f"rotate-{degrees}" if degrees else ""


def _rotate(quarter_turns: int, x: Array) -> Array:
    if x.ndim != 4:
        raise ConfigError(f"only images can be rotated, not samples of shape {x.shape[1:]}; use another partition")
    height, width = x.shape[2:]
    if height != width and quarter_turns % 2:
        raise ConfigError(f"images of {height}x{width} have no quarter turns; use partition.rotations=2")
    return np.rot90(x, quarter_turns, axes=(2, 3))


TRANSFORMS: dict[str, Transform] = {
    rotation(90 * quarter_turns): partial(_rotate, quarter_turns) for quarter_turns in (1, 2, 3)
}
