"""Generators that are made at once are those that are made one by one."""

import numpy as np
import pytest

from fedsim.rng import stream, streams


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**70])
@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_streams_are_those_of_their_keys(seed: int, length: int) -> None:
    keys = [tuple(row) for row in np.random.default_rng(length).integers(2**20, size=(5, length)).tolist()]
    got = [one.integers(2**63, size=4).tolist() for one in streams(seed, keys, "train")]
    assert got == [stream(seed, *key, "train").integers(2**63, size=4).tolist() for key in keys]
    assert len({tuple(values) for values in got}) == len(keys)
