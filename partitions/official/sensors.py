"""Motion sensors: UCI HAR (Anguita et al. 2013) and PAMAP2 (Reiss and Stricker 2012). Samples are time x channels."""

from pathlib import Path

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.by_user import TEST_FRACTION
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.official import reading
from fedsim.partitions.raw import PARTS, Raw, validated
from fedsim.partitions.split import Array

HAR_SIGNALS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
PAMAP2_ACTIVITIES = (1, 2, 3, 4, 5, 6, 7, 12, 13, 16, 17, 24)  # of the protocol; 0 is the time between them
# Acceleration (16g), gyroscope and magnetometer of hand, chest and ankle; columns count from 0, each sensor has 17.
PAMAP2_CHANNELS = tuple(start + offset for start in (3, 20, 37) for offset in (1, 2, 3, 7, 8, 9, 10, 11, 12))
WINDOW, STEP = 256, 128  # moments of time, at 100 Hz


def uci_har(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """Windows of 128 moments of 9 signals, which are one file each; subjects are the users."""
    arrays: dict[str, Array] = {}
    users: list[Array] = []
    for part in PARTS:
        signals = [_numbers(folder / part / "Inertial Signals" / f"{name}_{part}.txt") for name in HAR_SIGNALS]
        if len({signal.shape for signal in signals}) > 1:
            raise ConfigError(f"{folder / part}: the signals have different numbers of windows or moments")
        arrays[f"x_{part}"] = np.stack(signals, axis=2)
        arrays[f"y_{part}"] = _numbers(folder / part / f"y_{part}.txt")[:, 0] - 1
        users.append(_numbers(folder / part / f"subject_{part}.txt")[:, 0].astype(np.int64).astype(str))
    return validated(arrays, spec, str(folder), np.concatenate(users))


def pamap2(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`Protocol/subject101.dat` to `subject109.dat`: windows of 256 moments of 27 channels; subjects are users.

    A window lies within one activity; the last fifth of every activity's time is for tests, so no moment is in both
    parts. Values that the wireless sensors lost are interpolated in time.
    """
    files = sorted((folder / "Protocol").glob("subject*.dat"))
    if not files:
        raise ConfigError(f"{folder / 'Protocol'} holds no subject*.dat")
    stacks = {part: scratch.stack() for part in PARTS}
    labels: dict[str, list[int]] = {part: [] for part in PARTS}
    users: dict[str, list[str]] = {part: [] for part in PARTS}
    for file in files:
        table = _numbers(file, (1, *PAMAP2_CHANNELS))
        activity, signal = table[:, 0].astype(int), _interpolated(table[:, 1:], file)
        borders = np.flatnonzero(np.diff(activity)) + 1
        for own in np.split(np.arange(len(activity)), borders):
            if activity[own[0]] not in PAMAP2_ACTIVITIES:
                continue
            cut = own[0] + round((1 - TEST_FRACTION) * len(own))
            for part, (start, end) in zip(PARTS, ((own[0], cut), (cut, own[-1] + 1)), strict=True):
                for first in range(start, end - WINDOW + 1, STEP):
                    stacks[part].add(signal[None, first : first + WINDOW])
                    labels[part].append(PAMAP2_ACTIVITIES.index(activity[own[0]]))
                    users[part].append(file.stem.removeprefix("subject10"))
    arrays = {f"x_{part}": stack.array() for part, stack in stacks.items()}
    arrays |= {f"y_{part}": np.array(found, np.int64) for part, found in labels.items()}
    if not all(len(stack) for stack in stacks.values()):
        raise ConfigError(f"{folder} holds no activity of {2 * WINDOW} moments or more")
    return validated(arrays, spec, str(folder), np.array(users["train"] + users["test"]))


def _numbers(file: Path, columns: tuple[int, ...] | None = None) -> Array:
    with reading(file):
        return np.loadtxt(file, np.float32, usecols=columns, ndmin=2)


def _interpolated(signal: Array, file: Path) -> Array:
    time = np.arange(len(signal))
    for channel in signal.T:
        lost = np.isnan(channel)
        if lost.all():
            raise ConfigError(f"{file}: a sensor has no values at all")
        channel[lost] = np.interp(time[lost], time[~lost], channel[~lost])
    return signal
