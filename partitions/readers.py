"""Raw arrays from an npz file, scikit-learn or torchvision, validated and brought to one layout."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedsim.errors import ConfigError
from fedsim.partitions import text
from fedsim.partitions.catalogue import Single
from fedsim.partitions.split import Array

PARTS = ("train", "test")
FURTHER = ("classes", "mean", "std", "objective")  # what a file may say of itself
CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Raw:
    """Samples, their targets and, where known, the user of each sample.

    x_train, x_test   images N x C x H x W (uint8 or float32); other samples N x sample shape (float32 or integers)
    y_train, y_test   class labels (int64, one per sample), or what the objective of `spec` takes
    """

    spec: Single  # completed by what the source itself says
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    users: Array | None = None
    vocabulary: int = 0  # how many different token ids the samples can hold; 0: they are no tokens


def from_npz(path: Path, spec: Single) -> Raw:
    """Arrays `x_train y_train x_test y_test`, and optionally

    `user_train user_test`  the user that each sample belongs to,
    `classes`               their number or names, for silos that do not hold the last class,
    `mean std`              per channel, for silos that have agreed on a common normalization of images,
    `objective`             what models are trained for, such as "regression"; "classification" if absent,
    `alphabet`              characters: samples are positions in it, to which token ids add two,
    `vocabulary`            how many token ids there are, for samples that are token ids already.

    Texts (str, or bytes in UTF-8) are tokenized; labels that are texts become numbers in the order of the names.

    Which arrays are images, and which are taken as they are, is said in `validated`.
    """
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            missing = [f"{a}_{p}" for a in "xy" for p in PARTS if f"{a}_{p}" not in file]
            if missing:
                raise ConfigError(f"{path} lacks {', '.join(missing)}; it needs x_train, y_train, x_test and y_test")
            users = [file[f"user_{p}"].astype(str) for p in PARTS if f"user_{p}" in file]
            further = {key: file[key] for key in (*FURTHER, "alphabet", "vocabulary") if key in file}
            arrays = {f"{a}_{p}": file[f"{a}_{p}"] for a in "xy" for p in PARTS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        why = "it is none" if "allow_pickle" in str(error) else error  # numpy advises to trust it
        raise ConfigError(f"{path} cannot be read as an npz file: {why}") from error
    if len(users) == 1:
        raise ConfigError(f"{path} holds only one of user_train and user_test; it needs both, or neither")
    owners = np.concatenate(users) if users else None
    return tokenized(numbered(arrays), _completed(spec, further, path), str(path), owners, further)


def numbered(arrays: dict[str, Array]) -> dict[str, Array]:
    """Labels that are texts as numbers, in the order of the sorted names of both parts."""
    if any(arrays[f"y_{p}"].dtype.kind not in "US" for p in PARTS):
        return arrays
    labels = np.unique(np.concatenate([arrays[f"y_{p}"].astype(str) for p in PARTS]), return_inverse=True)[1]
    train, test = np.split(labels, [len(arrays["y_train"])])
    return {**arrays, "y_train": train, "y_test": test}


def tokenized(
    arrays: dict[str, Array],
    spec: Single,
    where: str,
    users: Array | None = None,
    further: Mapping[str, Array] = MappingProxyType({}),
) -> Raw:
    """`validated`, with token ids in the place of texts and of positions in an `alphabet`."""
    if all(arrays[f"x_{p}"].dtype.kind in "US" and arrays[f"x_{p}"].ndim == 1 for p in PARTS):
        texts = {p: text.decoded(arrays[f"x_{p}"], f"{where}: x_{p}") for p in PARTS}
        words = text.vocabulary_of(texts["train"])
        arrays = {**arrays, **{f"x_{p}": text.encoded(texts[p], words) for p in PARTS}}
        vocabulary = text.FIRST + len(words)
    elif "alphabet" in further:
        arrays = {**arrays, **{f"x_{p}": arrays[f"x_{p}"].astype(np.int32) + text.FIRST for p in PARTS}}
        vocabulary = text.FIRST + len(str(further["alphabet"]))
    else:
        vocabulary = int(further.get("vocabulary", np.array(0)))
    largest = max((int(arrays[f"x_{p}"].max(initial=0)) for p in PARTS), default=0) if vocabulary else 0
    if largest > vocabulary - 1 and vocabulary:
        raise ConfigError(f"{where} holds the token {largest}; tokens run from 0 to {vocabulary - 1}")
    return replace(validated(arrays, spec, where, users), vocabulary=vocabulary)


def _completed(spec: Single, further: dict[str, Array], path: Path) -> Single:
    """The description of a user's file with what the file says of itself; that of a known dataset stays as it is."""
    if spec.classes:
        return spec
    if ("mean" in further) != ("std" in further):
        raise ConfigError(f"{path} holds only one of mean and std; it needs both, or neither")
    try:
        mean, std = (
            tuple(np.atleast_1d(further[key]).astype(float).tolist()) if key in further else ()
            for key in ("mean", "std")
        )
        told = further.get("classes", np.array(0))
        classes = len(told) if told.ndim == 1 and told.dtype.kind in "US" else int(told)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path}: classes must be one number or a list of names, mean and std one per channel: {error}"
        ) from error
    if len(mean) != len(std) or not all(0 < s < np.inf for s in std) or not np.isfinite(mean).all() or classes < 0:
        raise ConfigError(f"{path}: classes must be positive, mean and std one number per channel, std above 0")
    objective = str(further.get("objective", spec.objective))
    return replace(spec, classes=classes, mean=mean, std=std, objective=objective)


def from_sklearn(spec: Single) -> Raw:
    """The embedded digits; every fifth image of a class is a test image, so each part holds every class and writer."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    place = np.empty(len(y), np.int64)  # of an image among those of its class
    for label in range(10):
        place[y == label] = np.arange((y == label).sum())
    test = place % 5 == 4
    return Raw(spec, x[~test], y[~test], x[test], y[test])


def from_torchvision(spec: Single, file: Path) -> Raw:
    """torchvision's copy beside `file`, downloaded if it is not there; on failure the error suggests the npz `file`."""
    try:
        import torchvision

        arrays = _torchvision_arrays(torchvision.datasets, spec, file.parent / "torchvision")
    except Exception as error:  # a download can fail in many ways; the two ways out are always the same
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ConfigError(
            f"dataset {spec.name!r} is not here. Either put it at {file} (arrays x_train, y_train, x_test, y_test), "
            f"or let torchvision fetch it with `fedsim data {spec.name}`, which failed just now: {reason}"
        ) from error
    return validated(arrays, spec, f"torchvision's {spec.name}")


def _torchvision_arrays(catalogue: Any, spec: Single, root: Path) -> dict[str, Array]:
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


def validated(arrays: dict[str, Array], spec: Single, where: str, users: Array | None = None) -> Raw:
    """The arrays in the layout of `Raw`; raises ConfigError with the array in `where` that does not fit.

    Images have 4 dimensions, N x H x W x C or N x C x H x W, or 3 if they are grey, N x H x W. Arrays with 3 dimensions
    are images only if they are uint8, or if the dataset has a mean and std. Everything else is taken as it is: feature
    vectors N x F, windows N x T x C, token ids N x T. Floats become float32; integers other than images stay integers.
    """
    x = {p: _samples(arrays[f"x_{p}"], f"{where}: x_{p}", spec) for p in PARTS}
    y = {p: _targets(arrays[f"y_{p}"], f"{where}: y_{p}", spec) for p in PARTS}
    for p in PARTS:
        if len(x[p]) != len(y[p]):
            raise ConfigError(f"{where}: x_{p} holds {len(x[p])} samples but y_{p} {len(y[p])}")
        if len(x[p]) == 0:
            raise ConfigError(f"{where}: x_{p} is empty")
    for name, values in (("x", x), ("y", y)):
        train, test = values["train"], values["test"]
        if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
            raise ConfigError(
                f"{where}: {name}_train is {train.dtype} of shape {train.shape[1:]} "
                f"but {name}_test is {test.dtype} of shape {test.shape[1:]}"
            )
    if spec.mean and x["train"].ndim != 4:
        raise ConfigError(f"{where}: mean and std normalize images, not samples of shape {x['train'].shape[1:]}")
    if spec.mean and len(spec.mean) != x["train"].shape[1]:
        raise ConfigError(f"{where}: {spec.name} has {len(spec.mean)} channels, not {x['train'].shape[1]}")
    if spec.vision and x["train"].dtype != np.uint8 and not all(x[p].min() >= 0 and x[p].max() <= 1 for p in PARTS):
        raise ConfigError(
            f"{where}: pixels of {spec.name} must be whole numbers from 0 to 255, or fractions from 0 to 1"
        )
    if users is not None and len(users) != len(y["train"]) + len(y["test"]):
        raise ConfigError(f"{where}: user_train and user_test must hold one entry per sample")
    return Raw(spec, x["train"], y["train"], x["test"], y["test"], users)


def _samples(x: Array, where: str, spec: Single) -> Array:
    if x.dtype.kind not in "uif" or x.ndim < 2:
        raise ConfigError(
            f"{where} must be numbers of shape N x F, N x T x C, N x H x W x C or the like, "
            f"not {x.dtype} of shape {x.shape}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ConfigError(f"{where} holds NaN or infinity")
    if x.ndim == 4 or (x.ndim == 3 and (x.dtype == np.uint8 or spec.mean or spec.vision)):
        return _images(x)
    return np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else x.dtype.newbyteorder("="))


def _images(x: Array) -> Array:
    """N x H x W or N x H x W x C (also channels first) -> N x C x H x W; whole numbers from 0 to 255 become uint8."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[3] in (1, 3, 4) or x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    if x.dtype.kind in "ui" and x.size and x.min() >= 0 and x.max() <= 255:
        return np.ascontiguousarray(x, np.uint8)
    return np.ascontiguousarray(x, np.float32)


def _targets(y: Array, where: str, spec: Single) -> Array:
    """Class labels as int64; targets of a regression as float32; those of other objectives as int64 or float32."""
    if y.ndim == 2 and y.shape[1] == 1:  # Keras writes CIFAR's labels as a column
        y = y[:, 0]
    if spec.objective == CLASSIFICATION:
        return _labels(y, where, spec.classes)
    if y.ndim == 0 or y.dtype.kind not in "uif" or not np.isfinite(y).all():
        raise ConfigError(f"{where} must be finite numbers for objective={spec.objective}, not {y.dtype}")
    if spec.objective == REGRESSION or y.dtype.kind == "f":
        return y.astype(np.float32)
    return _in_range(y, where, spec.classes)


def _labels(y: Array, where: str, classes: int) -> Array:
    if y.ndim != 1 or y.dtype.kind not in "uif" or not np.isfinite(y).all() or (y != np.floor(y)).any():
        raise ConfigError(
            f"{where} must be one whole number per sample, not {y.dtype} of shape {y.shape}; "
            f"real numbers need objective={REGRESSION}"
        )
    return _in_range(y, where, classes)


def _in_range(y: Array, where: str, classes: int) -> Array:
    y = y.astype(np.int64)
    if y.size and (y.min() < 0 or (classes and y.max() >= classes)):
        worst = y.min() if y.min() < 0 else y.max()
        raise ConfigError(
            f"{where} holds the label {worst}; labels run from 0 to {classes - 1 if classes else 'classes - 1'}"
        )
    return y
