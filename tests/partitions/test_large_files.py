"""Files that are larger than memory, and files that pretend to be."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import datasets, image_folder, table_files
from fedsim.partitions.large_arrays import Scratch, extent

COLUMNS, PER_ROW = 64, 80  # of float32; bytes of a row that memory may hold: its target, its user, its part
RNG = np.random.default_rng(0)
POOLS = []  # Arrow needs them as long as the process lives


def table(rows: int) -> pa.Table:
    x = RNG.integers(0, 1000, (rows, COLUMNS)) / 8
    columns = {f"x{i}": x[:, i] for i in range(COLUMNS)}
    return pa.table({**columns, "label": np.arange(rows) % 10, "user": [f"u{i % 50}" for i in range(rows)]})


def write_npz(content: pa.Table, file: Path) -> None:
    x = np.stack([content[f"x{i}"].to_numpy() for i in range(COLUMNS)], axis=1).astype(np.float32)
    y = content["label"].to_numpy()
    np.savez(file, x_train=x[1000:], y_train=y[1000:], x_test=x[:1000], y_test=y[:1000])


def peak(file: Path) -> int:
    """The most memory that Python, numpy and Arrow hold while `file` is prepared."""
    params = DataParams() if file.suffix == ".npz" else DataParams(user="user", length=COLUMNS)
    usual, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(watched)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        datasets.load(str(file), "", params)
        return tracemalloc.get_traced_memory()[1] + (watched.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


@pytest.mark.parametrize(
    ("name", "rows", "write"),
    [
        ("numbers.csv", (30_000, 60_000), lambda content, file: pyarrow.csv.write_csv(content, file)),
        ("numbers.parquet", (30_000, 60_000), lambda content, file: pq.write_table(content, file, row_group_size=5000)),
        ("numbers.npz", (70_000, 100_000), write_npz),  # smaller arrays are not mapped
    ],
)
def test_memory_does_not_grow_with_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    rows: tuple[int, int],
    write: Callable[[pa.Table, Path], None],
) -> None:
    monkeypatch.setattr(table_files, "BLOCK", 1 << 16)  # what is read ahead is then less than these files hold
    peaks = []
    for count in rows:
        file = tmp_path / str(count) / name
        file.parent.mkdir()
        write(table(count), file)
        peaks.append(peak(file))
    grown = rows[1] - rows[0]
    assert peaks[1] - peaks[0] < PER_ROW * grown < 4 * COLUMNS * grown / 3  # a third of what the samples take


def png(file: Path, width: int, height: int) -> None:
    """A few bytes that claim to be an image of that size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [37_000, 10_000])  # 4 GB; more than Pillow warns of
def test_an_image_bomb_is_refused_unread(tmp_path: Path, side: int) -> None:
    png(tmp_path / "train" / "a" / "bomb.png", side, side)
    with pytest.raises(
        ConfigError, match=r"bomb.png cannot be read as an image: Image size \(\d+ pixels\) exceeds limit"
    ):
        datasets.load(str(tmp_path), "", DataParams(size=8))
    table = pa.table({"x": [(tmp_path / "train" / "a" / "bomb.png").read_bytes()] * 10, "label": [0] * 10})
    pq.write_table(table, tmp_path / "bombs.parquet")
    with pytest.raises(ConfigError, match=r"bombs.parquet, row 1: column 'x' cannot be read as an image: Image size"):
        datasets.load(str(tmp_path / "bombs.parquet"))


def test_a_stack_of_other_rows_and_of_none(tmp_path: Path) -> None:
    with Scratch(tmp_path) as scratch:
        stack = scratch.stack()
        stack.add(np.zeros((2, 3), np.float32))
        with pytest.raises(ValueError, match=r"float32 of shape \(4,\), not float32 \(3,\)"):
            stack.add(np.zeros((1, 4), np.float32))
        assert stack.array().shape == (2, 3)
        assert scratch.mapped(np.zeros((0, 5)), lambda block: block.astype(np.int32)).shape == (0, 5)
    assert list(tmp_path.iterdir()) == []
    assert extent(np.zeros((0, 2))) == (0, 0)
    assert not image_folder.is_image_folder(tmp_path)
