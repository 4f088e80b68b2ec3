"""A run on samples that are no images, from the file to the summary."""

from pathlib import Path

import numpy as np
import pytest

from fedsim.cli import main
from fedsim.results.record import read_summary


@pytest.mark.parametrize(("shape", "dtype"), [((6,), "float64"), ((3, 2), "float16"), ((6,), "uint8"), ((6,), "int32")])
def test_a_model_learns_from_numbers_of_any_shape_and_type(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    x = rng.normal(0, 0.3, (240, 6)) + np.eye(6)[y]
    x = (10 * (x - x.min())).astype(dtype).reshape(240, *shape)
    file = tmp_path / "signals.npz"
    np.savez(file, x_train=x[:180], y_train=y[:180], x_test=x[180:], y_test=y[180:])
    settings = [f"dataset={file}", "model=mlp", "clients=3", "rounds=3", "partition=iid", "lr=0.02"]
    flags = [word for pair in settings for word in ("--set", pair)]
    assert main(["run", "--engine", "inline", *flags, "--out", str(tmp_path / "run")]) == 0
    summary = read_summary(tmp_path / "run")
    assert summary["failures"] == []
    assert summary["accuracy"]["global"]["final"] > 0.8
