"""A run on samples that are no images, from the file to the summary."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.cli import main
from fedsim.results.record import read_summary


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_a_model_learns_from_real_numbers_of_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    x = rng.normal(0, 0.3, (240, 6)) + np.eye(6)[y]
    x = x.reshape(240, *shape)
    file = tmp_path / "signals.npz"
    np.savez(file, x_train=x[:180], y_train=y[:180], x_test=x[180:], y_test=y[180:])
    settings = [f"dataset={file}", "model=mlp", "clients=3", "rounds=3", "partition=iid"]
    flags = [word for pair in settings for word in ("--set", pair)]
    assert main(["run", "--engine", "inline", *flags, "--out", str(tmp_path / "run")]) == 0
    summary = read_summary(tmp_path / "run")
    assert summary["failures"] == []
    assert summary["accuracy"]["global"]["final"] > 0.8
