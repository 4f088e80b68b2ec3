"""Searching on validation data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import client_data
from fedsim.sweeps.sweep_file import Sweep, read_sweep


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "s.toml"
    path.write_text("[grid]\nseed = [0, 1]\n" + text)
    return read_sweep(str(path))


def test_a_grid_of_candidates(tmp_path: Path) -> None:
    search = read(tmp_path, "[search.over]\nlr = [0.1, 0.2]\nmomentum = [0.0, 0.9]\n").search
    assert search is not None
    tried = search.candidates(RunConfig())
    assert [(c.lr, c.momentum, c.validation) for c in tried] == [
        *((0.1, 0.0, 0.2), (0.1, 0.9, 0.2)),
        *((0.2, 0.0, 0.2), (0.2, 0.9, 0.2)),
    ]
    best = search.best_candidate(RunConfig(seed=7), [0.1, None, 0.8, 0.8])
    assert (best.lr, best.momentum, best.seed, best.validation) == (0.2, 0.0, 7, 0.0)
    lowest = search.best_candidate(RunConfig(), [0.4, None, 0.3, 0.3], higher_is_better=False)
    assert (lowest.lr, lowest.momentum) == (0.2, 0.0)


def test_random_candidates_are_the_same_every_time(tmp_path: Path) -> None:
    text = "[search]\npoints = 6\n[search.over]\nlr = { low = 0.001, high = 1.0, log = true }\nmomentum = [0.0, 0.9]\n"
    first, again = read(tmp_path, text).search, read(tmp_path, text).search
    assert first is not None
    assert first == again
    rates = [float(point["lr"]) for point in first.points]
    assert len(set(rates)) == 6
    assert all(0.001 <= rate <= 1 for rate in rates)


def test_nonsense_is_refused(tmp_path: Path) -> None:
    for text, message in [
        ("[search]\npoints = 3\n", "names no key"),
        ("[search.over]\nlr = { low = 1, high = 2 }\n", "needs search.points"),
        (
            "[search]\nvalidation = 1.5\n[search.over]\nlr = [1]\n",
            "search.validation must be above 0 and below 1, not 1.5",
        ),
        ("[search]\npoints = 2\n[search.over]\nlr = 3\n", "must be a list"),
        ("[search]\ntries = 2\n[search.over]\nlr = [1]\n", "unknown config key 'search.tries'.*search.points"),
    ]:
        with pytest.raises(ConfigError, match=message):
            read(tmp_path, text)
    search = read(tmp_path, "[search.over]\nlr = [0.1]\n").search
    assert search is not None
    with pytest.raises(ConfigError, match="nothing to choose"):
        search.best_candidate(RunConfig(), [None])


def test_validation_never_touches_the_tests(small: Callable[..., RunConfig]) -> None:
    plain, held = client_data(small(), 0), client_data(small("validation=0.25"), 0)
    assert len(held.y_train) + len(held.y_test) == len(plain.y_train)
    assert len(held.y_test) == round(0.25 * len(plain.y_train))
    known = {sample.tobytes() for sample in plain.x_train}
    assert all(sample.tobytes() in known for sample in held.x_test)
    assert not np.array_equal(held.x_test[: len(plain.x_test)], plain.x_test)
