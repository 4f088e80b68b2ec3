"""Where raw arrays come from: an npz file, scikit-learn, torchvision. Everything is checked here, once."""

import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from partitions.catalogue import Single

Array = NDArray[Any]
PARTS = ("train", "test")


@dataclass(frozen=True)
class Raw:
    """Images as N x C x H x W (uint8, or float32 as given), labels and, where known, the user of each sample."""

    spec: Single  # completed by what the source itself says
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    users: Array | None = None


def from_npz(path: Path, spec: Single) -> Raw:
    """`x_train y_train x_test y_test`, and optionally

    `user_train user_test`  the natural owner of each sample,
    `classes`               how many there are, for silos whose own labels do not reach the last one,
    `mean std`              per channel, for silos that have agreed on a common normalisation.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            missing = [f"{a}_{p}" for a in "xy" for p in PARTS if f"{a}_{p}" not in file]
            if missing:
                raise ConfigError(f"{path} lacks {', '.join(missing)}; it needs x_train, y_train, x_test and y_test")
            users = [file[f"user_{p}"].astype(str) for p in PARTS if f"user_{p}" in file]
            told = {key: file[key] for key in ("classes", "mean", "std") if key in file}
            arrays = {f"{a}_{p}": file[f"{a}_{p}"] for a in "xy" for p in PARTS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        why = "it is none" if "allow_pickle" in str(error) else error  # numpy advises to trust it
        raise ConfigError(f"{path} cannot be read as an npz file: {why}") from error
    if len(users) == 1:
        raise ConfigError(f"{path} holds only one of user_train and user_test; it needs both, or neither")
    return checked(arrays, _completed(spec, told, path), str(path), np.concatenate(users) if users else None)


def _completed(spec: Single, told: dict[str, Array], path: Path) -> Single:
    """The spec of a silo's own file with what the file says of itself; a known dataset is what it is."""
    if spec.classes:
        return spec
    if ("mean" in told) != ("std" in told):
        raise ConfigError(f"{path} holds only one of mean and std; it needs both, or neither")
    try:
        mean, std = (
            tuple(np.atleast_1d(told[key]).astype(float).tolist()) if key in told else () for key in ("mean", "std")
        )
        classes = int(told.get("classes", 0))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path}: classes must be one number, mean and std one per channel: {error}") from error
    if len(mean) != len(std) or not all(0 < s < np.inf for s in std) or not np.isfinite(mean).all() or classes < 0:
        raise ConfigError(f"{path}: classes must be positive, mean and std one number per channel, std above 0")
    return replace(spec, classes=classes, mean=mean, std=std)


def from_sklearn(spec: Single) -> Raw:
    """The embedded digits; every fifth image of a class is a test image, so each part holds every class and writer."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    place = np.empty(len(y), np.int64)  # the how-manieth of its class an image is
    for label in range(10):
        place[y == label] = np.arange((y == label).sum())
    test = place % 5 == 4
    return Raw(spec, x[~test], y[~test], x[test], y[test])


def from_torchvision(spec: Single, file: Path) -> Raw:
    """What torchvision keeps beside `file`, the npz that is not there, or downloads to that place."""
    try:
        import torchvision

        arrays = _vision_arrays(torchvision.datasets, spec, file.parent / "torchvision")
    except Exception as error:  # a mirror can fail in many ways; whichever it was, the user has the same two ways out
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ConfigError(
            f"dataset {spec.name!r} is not here. Either put it at {file} (arrays x_train, y_train, x_test, y_test), "
            f"or let torchvision fetch it with `fedsim data {spec.name}`, which failed just now: {reason}"
        ) from error
    return checked(arrays, spec, f"torchvision's {spec.name}")


def _vision_arrays(catalogue: Any, spec: Single, root: Path) -> dict[str, Array]:
    vision = spec.vision
    if vision is None:
        raise ValueError(f"torchvision does not know {spec.name}")
    root.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, options in (("train", vision.train), ("test", vision.test)):
        data = getattr(catalogue, vision.name)(str(root), download=True, **options)
        x = np.asarray(data.data)
        arrays[f"x_{part}"] = x.swapaxes(1, 2) if vision.transposed else x
        arrays[f"y_{part}"] = np.asarray(data.labels if vision.name in ("SVHN", "STL10") else data.targets)
    return arrays


def checked(arrays: dict[str, Array], spec: Single, where: str, users: Array | None = None) -> Raw:
    """The arrays in the one layout everything else relies on; what does not fit is refused by name."""
    x = {p: _images(arrays[f"x_{p}"], f"{where}: x_{p}") for p in PARTS}
    y = {p: _labels(arrays[f"y_{p}"], f"{where}: y_{p}", spec.classes) for p in PARTS}
    for p in PARTS:
        if len(x[p]) != len(y[p]):
            raise ConfigError(f"{where}: x_{p} holds {len(x[p])} samples but y_{p} {len(y[p])}")
        if len(x[p]) == 0:
            raise ConfigError(f"{where}: x_{p} is empty")
    if x["train"].shape[1:] != x["test"].shape[1:] or x["train"].dtype != x["test"].dtype:
        raise ConfigError(
            f"{where}: x_train is {x['train'].dtype} of shape {x['train'].shape[1:]} but x_test is "
            f"{x['test'].dtype} of shape {x['test'].shape[1:]} (channels, height, width)"
        )
    if spec.mean and len(spec.mean) != x["train"].shape[1]:
        raise ConfigError(f"{where}: {spec.name} has {len(spec.mean)} channels, not {x['train'].shape[1]}")
    if spec.vision and x["train"].dtype != np.uint8 and not all(x[p].min() >= 0 and x[p].max() <= 1 for p in PARTS):
        raise ConfigError(
            f"{where}: pixels of {spec.name} must be whole numbers from 0 to 255, or fractions from 0 to 1"
        )
    if users is not None and len(users) != len(y["train"]) + len(y["test"]):
        raise ConfigError(f"{where}: user_train and user_test must hold one entry per sample")
    return Raw(spec, x["train"], y["train"], x["test"], y["test"], users)


def _images(x: Array, where: str) -> Array:
    """N x D, N x H x W or N x H x W x C (also channels first) -> N x C x H x W."""
    if x.dtype.kind not in "uif" or not 2 <= x.ndim <= 4:
        raise ConfigError(
            f"{where} must be numbers of shape N x D, N x H x W or N x H x W x C, not {x.dtype} of shape {x.shape}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ConfigError(f"{where} holds NaN or infinity")
    if x.ndim == 2:
        x = x[:, None, None, :]
    elif x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in (1, 3, 4) or x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    if x.dtype.kind in "ui" and x.size and x.min() >= 0 and x.max() <= 255:
        return np.ascontiguousarray(x, np.uint8)
    return np.ascontiguousarray(x, np.float32)


def _labels(y: Array, where: str, classes: int) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:  # Keras writes CIFAR's labels as a column
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "uif" or not np.isfinite(y).all() or (y != np.floor(y)).any():
        raise ConfigError(f"{where} must be one whole number per sample, not {y.dtype} of shape {y.shape}")
    y = y.astype(np.int64)
    if y.size and (y.min() < 0 or (classes and y.max() >= classes)):
        worst = y.min() if y.min() < 0 else y.max()
        raise ConfigError(
            f"{where} holds the label {worst}; labels run from 0 to {classes - 1 if classes else 'classes - 1'}"
        )
    return y
