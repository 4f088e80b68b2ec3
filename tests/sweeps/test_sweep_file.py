"""Sweep files: further keys by value, the baseline of speed-ups, and the keys of a heat map."""

from pathlib import Path

import pytest

from fedsim.errors import ConfigError
from fedsim.sweeps.sweep_file import Sweep, read_sweep

TEXT = """
baseline = "slow"
heatmap = ["batch-size", "partition"]
[grid]
batch-size = [0, 10]
partition = ["iid", "shards"]
[with."batch-size=0"]
lr = 0.5
[with."partition=shards, batch-size=10"]
lr = 0.01
[cell.slow]
[cell.fast]
local-epochs = 5
"""


def read(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return read_sweep(str(path))


def test_further_keys_by_value(tmp_path: Path) -> None:
    cells = read(tmp_path, TEXT).cells
    rates = {(c.batch_size, c.partition): c.lr for c in cells.values()}
    assert rates == {(0, "iid"): 0.5, (0, "shards"): 0.5, (10, "iid"): 0.05, (10, "shards"): 0.01}


def test_the_baseline_has_the_same_values_of_the_grid(tmp_path: Path) -> None:
    found = read(tmp_path, TEXT)
    assert found.baselines["fast-batch-size=0-partition=shards"] == "slow-batch-size=0-partition=shards"
    assert found.baselines["slow-batch-size=10-partition=iid"] == "slow-batch-size=10-partition=iid"
    assert set(found.baselines.values()) <= set(found.cells)
    assert found.heatmap == ("batch-size", "partition")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"slow"\n', '"slowest"\n', "unknown baseline of .* 'slowest'.*fast, slow"),
        ('["batch-size", "partition"]\n', '["batch-size"]\n', "heatmap needs the keys of its rows and columns"),
    ],
)
def test_nonsense_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, TEXT.replace(old, new, 1))
