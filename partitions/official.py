"""Datasets from the files that their authors publish, below the data root."""

import csv
from pathlib import Path

import numpy as np

from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import Single
from fedsim.partitions.readers import PARTS, Raw, tokenized, validated
from fedsim.partitions.split import Array

HAR_SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")


def _folder(spec: Single, root: Path, name: str) -> Path:
    """The published folder; raises ConfigError with the source if it is not there."""
    if not (root / name).is_dir():
        raise ConfigError(
            f"dataset {spec.name!r} is not here: expected {root / spec.name}.npz or the folder {root / name} "
            f"from {spec.source}"
        )
    return root / name


def news(spec: Single, root: Path) -> Raw:
    """`train.csv` and `test.csv` of AG_News and Sogou_News: class from 1 on, then title and text."""
    folder = _folder(spec, root, spec.folder)
    arrays: dict[str, Array] = {}
    for part in PARTS:
        file = folder / f"{part}.csv"
        texts, labels = [], []
        try:
            with file.open(newline="", encoding="utf8") as handle:
                for number, row in enumerate(csv.reader(handle), 1):
                    if len(row) < 2 or not row[0].isdecimal():
                        raise ConfigError(f"{file}, row {number}: expected a class number and texts, not {row[:2]}")
                    labels.append(int(row[0]) - 1)
                    texts.append(" ".join(row[1:]))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error
        arrays[f"x_{part}"], arrays[f"y_{part}"] = np.array(texts), np.array(labels)
    return tokenized(arrays, spec, str(folder))


def uci_har(spec: Single, root: Path) -> Raw:
    """Windows of 128 steps of 9 signals, one file a signal; subjects are the users."""
    folder = _folder(spec, root, spec.folder)
    arrays: dict[str, Array] = {}
    users: list[Array] = []
    for part in PARTS:
        try:
            signals = [np.loadtxt(folder / part / "Inertial Signals" / f"{s}_{part}.txt", ndmin=2) for s in HAR_SIGNALS]
            arrays[f"y_{part}"] = np.loadtxt(folder / part / f"y_{part}.txt", dtype=np.int64, ndmin=1) - 1
            users.append(np.loadtxt(folder / part / f"subject_{part}.txt", dtype=np.int64, ndmin=1).astype(str))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} cannot be read: {error}") from error
        if len({signal.shape for signal in signals}) > 1:
            raise ConfigError(f"{folder / part}: the signals have different numbers of windows or steps")
        arrays[f"x_{part}"] = np.stack(signals, axis=2)
    return validated(arrays, spec, str(folder), np.concatenate(users))
