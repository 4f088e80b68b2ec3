"""What every reader returns: samples and targets, validated and brought to one layout. Arrays may be larger than memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import ConfigError
from fedsim.partitions import text
from fedsim.partitions.by_user import TEST_FRACTION
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch, blocks, extent, first_not_finite
from fedsim.partitions.split import Array
from fedsim.rng import stream

PARTS = ("train", "test")
CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Raw:
    """Samples, their targets and, where known, the user of each sample.

    x_train, x_test   images N x C x H x W; other samples N x sample shape; stored as `dtype`, None: as they are
    y_train, y_test   class labels (int64, one per sample), or what the objective of `spec` takes
    """

    spec: Single  # completed by what the source itself says
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    users: Array | None = None  # of the training samples, then of the test samples
    vocabulary: int = 0  # how many different token ids the samples can hold; 0: they are no tokens
    dtype: np.dtype[Any] | None = None
    tokens: Sequence[str] = ()  # the vocabulary, in the order of its ids from `text.FIRST` on
    numbered: tuple[str, ...] = ()  # what got its numbers from this data alone: "labels", "tokens"


def validated(arrays: dict[str, Array], spec: Single, where: str, users: Array | None = None) -> Raw:
    """The arrays in the layout of `Raw`; raises ConfigError with the array in `where` that does not fit.

    Images have 4 dimensions, N x H x W x C or N x C x H x W, or 3 if they are grey, N x H x W. Arrays with 3 dimensions
    are images only if they are uint8, or if the dataset has pictures of torchvision or a mean for its one channel.
    Everything else is taken as it is: feature vectors N x F, windows N x T x C, token ids N x T. Floats become float32;
    integers other than images stay integers.
    """
    x = {p: _samples(arrays[f"x_{p}"], f"{where}: x_{p}", spec) for p in PARTS}
    y = {p: _targets(arrays[f"y_{p}"], f"{where}: y_{p}", spec) for p in PARTS}
    dtypes = {p: _stored(x[p]) for p in PARTS}
    for p in PARTS:
        if len(x[p]) != len(y[p]):
            raise ConfigError(f"{where}: x_{p} holds {len(x[p])} samples but y_{p} {len(y[p])}")
        if len(x[p]) == 0:
            raise ConfigError(f"{where}: x_{p} is empty")
    kinds = {"x": dtypes, "y": {p: y[p].dtype for p in PARTS}}
    for name, values in (("x", x), ("y", y)):
        (train, test), (one, other) = values.values(), kinds[name].values()
        if train.shape[1:] != test.shape[1:] or one != other:
            raise ConfigError(
                f"{where}: {name}_train is {one} of shape {train.shape[1:]} "
                f"but {name}_test is {other} of shape {test.shape[1:]}"
            )
    _check_normalization(x, dtypes["train"], spec, where)
    if users is not None and len(users) != len(y["train"]) + len(y["test"]):
        raise ConfigError(f"{where}: user_train and user_test must hold one entry per sample")
    return Raw(spec, x["train"], y["train"], x["test"], y["test"], users, dtype=dtypes["train"])


def tokenized(
    arrays: dict[str, Array], spec: Single, where: str, scratch: Scratch, tokenizer: text.Tokenizer, **more: Any
) -> Raw:
    """`validated` with token ids in the place of texts (str, or bytes in UTF-8)."""
    parts = {p: arrays[f"x_{p}"] for p in PARTS}

    def texts(part: str, block: Array) -> list[str]:
        return text.decoded(block, f"{where}: x_{part}")

    counts = tokenizer.counter()
    for block in () if tokenizer.is_known else blocks(parts["train"]):
        counts.add(texts("train", block))
    words = tokenizer.vocabulary(counts)
    encoded = {
        f"x_{p}": scratch.mapped(x, lambda block, part=p: tokenizer.encoded(texts(part, block), words))  # type: ignore[misc]
        for p, x in parts.items()
    }
    raw = validated({**arrays, **encoded}, spec, where, **more)
    return with_tokens(raw, words, learned=not tokenizer.is_known)


def with_tokens(raw: Raw, words: dict[str, int], learned: bool) -> Raw:
    """`raw`, whose samples are ids of `words`; `learned`: from its own training texts."""
    own = (*raw.numbered, "tokens") if learned else raw.numbered
    return replace(raw, vocabulary=text.FIRST + len(words), tokens=tuple(words), numbered=own)


def check_tokens(raw: Raw, where: str) -> Raw:
    """`raw` if its samples are token ids below its vocabulary; raises ConfigError otherwise."""
    for p, x in zip(PARTS, (raw.x_train, raw.x_test), strict=True):
        least, most = extent(x)
        if x.dtype.kind not in "ui" or least < 0 or most >= raw.vocabulary:
            worst = x.dtype if x.dtype.kind not in "ui" else int(least) if least < 0 else int(most)
            raise ConfigError(f"{where}: x_{p} holds the token {worst}; tokens run from 0 to {raw.vocabulary - 1}")
    return raw


def moments(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel, the first axis of images and the last one of other samples; pixels of whole numbers
    count from 0 to 1. The deviation of a constant channel is 1."""
    images = x.ndim == 4
    axis = tuple(a for a in range(x.ndim) if a != (1 if images else x.ndim - 1))
    scale, channels = (255 if images and x.dtype == np.uint8 else 1), x.shape[1 if images else -1]
    shape = (channels, 1, 1) if images else (channels,)

    def mean(center: Array, power: int) -> NDArray[np.float64]:
        """Over blocks: a float64 copy of all samples might not fit in memory."""
        parts = ((block / scale - center.reshape(shape)) ** power for block in blocks(x, np.dtype(np.float64)))
        return np.asarray(sum((part.sum(axis) for part in parts), np.zeros(channels)) / (x.size // channels))

    center = mean(np.zeros(channels), 1)
    variance = mean(center, 2)
    return tuple(center.tolist()), tuple(np.where(variance > 0, np.sqrt(variance), 1).tolist())


def held_out(labels: Array) -> NDArray[np.bool_]:
    """Which samples are tests where the data names none: a fifth of every class, the same on every machine.

    A single sample of a class stays in training.
    """
    tests = np.zeros(len(labels), bool)
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    for own in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        count = min(len(own) - 1, max(1, round(TEST_FRACTION * len(own))))
        if len(own):
            tests[own[stream(0, "held out", str(labels[own[0]])).permutation(len(own))[:count]]] = True
    return tests


def _samples(x: Array, where: str, spec: Single) -> Array:
    if x.dtype.kind not in "uif" or x.ndim < 2:
        raise ConfigError(
            f"{where} must be numbers of shape N x F, N x T x C, N x H x W x C or the like, or texts, "
            f"not {x.dtype} of shape {x.shape}"
        )
    if x.dtype.kind == "f" and (row := first_not_finite(x)) is not None:
        raise ConfigError(f"{where} holds NaN or infinity, first in sample {row}; every number must be finite")
    if x.ndim == 3 and (x.dtype == np.uint8 or len(spec.mean) == 1 or spec.vision):
        return x[:, None]
    if x.ndim == 4 and (x.shape[3] in (1, 3, 4) or x.shape[1] not in (1, 3, 4)):
        return x.transpose(0, 3, 1, 2)
    return x


def _stored(x: Array) -> np.dtype[Any]:
    """The type in which samples are kept: images of whole numbers from 0 to 255 as uint8, real numbers as float32."""
    if x.ndim == 4 and x.dtype.kind in "ui" and x.size:
        least, most = extent(x)
        return np.dtype(np.uint8 if least >= 0 and most <= 255 else np.float32)
    return np.dtype(np.float32) if x.dtype.kind == "f" or x.ndim == 4 else x.dtype.newbyteorder("=")


def _check_normalization(x: dict[str, Array], dtype: np.dtype[Any], spec: Single, where: str) -> None:
    shape = x["train"].shape[1:]
    channels = shape[0] if len(shape) == 3 else shape[-1]
    if spec.mean and len(spec.mean) != channels:
        raise ConfigError(f"{where}: {spec.name} has {len(spec.mean)} channels, not {channels}")
    if spec.mean and dtype.kind != "f" and len(shape) != 3:
        raise ConfigError(f"{where}: mean and std normalize images or real numbers, not {dtype} of shape {shape}")
    if spec.vision and dtype != np.uint8 and not all(0 <= bound <= 1 for p in PARTS for bound in extent(x[p])):
        raise ConfigError(
            f"{where}: pixels of {spec.name} must be whole numbers from 0 to 255, or fractions from 0 to 1"
        )


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
