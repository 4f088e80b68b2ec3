"""Every random draw has a key (run seed, client id, step, job index, purpose), so that no order of execution matters."""

from zlib import crc32

import numpy as np


def stream(seed: int, *key: int | str) -> np.random.Generator:
    """The generator that belongs to this key, the same on every machine and engine."""
    words = [seed, *(crc32(part.encode()) if isinstance(part, str) else part for part in key)]
    small = max(words) < 2**32 and min(words) >= 0
    return np.random.default_rng(
        np.array(words, np.uint32) if small else words
    )  # the same seed; an array is read faster
