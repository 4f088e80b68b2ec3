"""Every random draw has a key (run seed, client id, step, job index, purpose), so that no order of execution matters."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

POOL = 4  # words of 32 bits that `numpy.random.SeedSequence` mixes a key into
LEFT, RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)  # its factors of two words that it mixes


def stream(seed: int, *key: int | str) -> np.random.Generator:
    """The generator that belongs to this key, the same on every machine and engine."""
    words = [seed, *(crc32(part.encode()) if isinstance(part, str) else part for part in key)]
    small = max(words) < 2**32 and min(words) >= 0
    return np.random.default_rng(
        np.array(words, np.uint32) if small else words
    )  # the same seed; an array is read faster


def streams(seed: int, keys: Sequence[tuple[int, ...]], purpose: str) -> list[np.random.Generator]:
    """[stream(seed, *key, purpose) for key in keys], for keys of one length: all are mixed at once, because one by one
    that takes as long as a step of training of a small client."""
    if not 0 <= seed < 2**32:
        return [stream(seed, *key, purpose) for key in keys]
    numbers = np.array(keys, np.int64)
    length = numbers.shape[1] + 2
    words = np.zeros((len(keys), max(length, POOL)), np.uint32)  # short keys are filled up with 0
    words[:, 0], words[:, 1 : length - 1], words[:, length - 1] = seed, numbers, crc32(purpose.encode())
    seeds: list[Any] = [_Mixed(state) for state in _states(words)]
    return [np.random.Generator(np.random.PCG64(each)) for each in seeds]


class _Mixed(ISeedSequence):
    """The seed of a generator whose state is known."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        return self._state


@lru_cache(maxsize=16)
def _constants(first: int, factor: int, count: int) -> NDArray[np.uint32]:
    """first, first * factor, first * factor^2, ... modulo 2^32, one per row."""
    powers = accumulate(repeat(factor, count - 1), lambda value, by: value * by % 2**32, initial=first)
    return np.array(list(powers), np.uint32)[:, None]


def _states(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """SeedSequence(key).generate_state(4, np.uint64) of every row. Numpy promises that this function does not change."""
    entropy = words.T
    constants, place = _constants(0x43B0D7E5, 0x931E8875, 4 * (1 + 3 + len(entropy))), POOL
    pool = _hashed(entropy[:POOL], constants[: POOL + 1])
    for source in range(POOL):  # every word of the pool goes into every other
        others = [row for row in range(POOL) if row != source]
        pool[others] = _mixed(pool[others], _hashed(pool[source], constants[place : place + POOL]))
        place += POOL - 1
    for word in entropy[POOL:]:
        pool = _mixed(pool, _hashed(word, constants[place : place + POOL + 1]))
        place += POOL
    state = _hashed(np.concatenate([pool, pool]), _constants(0x8B51F9DD, 0x58F38DED, 2 * POOL + 1))
    return np.ascontiguousarray(state.T).view("<u8").astype(np.uint64)


def _hashed(values: NDArray[np.uint32], constants: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found = (values ^ constants[:-1]) * constants[1:]
    return found ^ (found >> np.uint32(16))


def _mixed(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found: NDArray[np.uint32] = LEFT * x - RIGHT * y
    return found ^ (found >> np.uint32(16))
