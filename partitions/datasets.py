"""A dataset by name: found, prepared once into memory-mapped arrays, and read by every process after that.

`ROOT/NAME.npz` comes first, then a table `ROOT/NAME.csv` or `.parquet` and a folder `ROOT/NAME/` of images or tables: a
user's data wins over any download. Then the files that the authors publish, then torchvision or the Hugging Face hub. An
absolute path names a file or folder itself, which is how a node brings its own data without code. `hf:OWNER/NAME` is a
dataset of the hub. `A+B` names several datasets side by side that share their labels.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache as memoize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.config import DataParams
from fedsim.errors import ConfigError, unknown
from fedsim.files import write_json, write_npy, write_text
from fedsim.partitions import cache, hub, sources, text, transforms
from fedsim.partitions.catalogue import Composite, Single
from fedsim.partitions.large_arrays import Scratch, rows_of
from fedsim.partitions.raw import Raw, moments
from fedsim.partitions.split import Array, Indices, Labels

FORMAT = 4  # raise when the prepared arrays change
TOKENS = "tokens.txt"  # the vocabulary of texts, beside the prepared arrays
USUAL = DataParams()
Progress = Callable[[int, int], None]  # done, of how many samples


@dataclass(frozen=True)
class Prepared:
    """One dataset as memory-mapped arrays in the layout of `raw.Raw`."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    users: NDArray[np.str_] | None
    classes: int  # how many values a whole-numbered target can take; 0: targets are real numbers
    objective: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str
    vocabulary: int = 0  # how many different token ids the samples can hold; 0: they are no tokens
    numbers: bool = False  # whole numbers are counts, which models see as float32
    numbered: tuple[str, ...] = ()  # what got its numbers from this data alone: "labels", "tokens"
    tokens: Path | None = None  # the vocabulary of texts: a token in every line

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self.x_train.shape[1:]

    @property
    def is_images(self) -> bool:
        return self.x_train.ndim == 4

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the samples that models see: float32, but int64 for whole numbers that are neither pixels nor counts."""
        real = self.is_images or self.numbers or self.x_train.dtype.kind == "f"
        return np.dtype(np.float32 if real else np.int64)

    def samples(self, indices: Indices) -> Array:
        """The samples at pooled `indices`, as stored: pixels 0..255, or the numbers of the user's file."""
        n = len(self.x_train)
        out = np.empty((len(indices), *self.shape), self.dtype)
        train = indices < n
        out[train] = self.x_train[indices[train]]
        out[~train] = self.x_test[indices[~train] - n]
        return out

    def normalize(self, x: Array) -> None:
        """Samples as stored -> mean 0 and deviation 1 per channel, in place; those without a mean stay as they are."""
        if not self.mean:
            return
        scale = 255 if self.is_images and self.x_train.dtype == np.uint8 else 1
        mean, std = (np.array(v, np.float32) for v in (self.mean, self.std))
        if self.is_images:
            mean, std = mean[:, None, None], std[:, None, None]
        x -= mean * scale
        x /= std * scale


@dataclass(frozen=True)
class Dataset:
    """One prepared dataset, or several of one sample shape: small images are padded with zeros, grey ones repeated."""

    name: str
    parts: tuple[Prepared, ...]
    labels: Labels  # what splits see
    targets: Array  # of the pooled samples: the class labels, or what the objective takes
    classes: int  # how many values a whole-numbered target can take; 0: targets are real numbers
    shape: tuple[int, ...]  # of one sample; images: channels, height, width

    @property
    def objective(self) -> str:
        return self.parts[0].objective

    @property
    def vocabulary(self) -> int:
        return self.parts[0].vocabulary

    @property
    def has_class_labels(self) -> bool:
        return _has_class_labels(self.targets)

    @property
    def fingerprint(self) -> str:
        return cache.key(self.classes, [part.fingerprint for part in self.parts])

    def samples(self, indices: Indices, normalized: bool = True, transform: str = "") -> Array:
        """The samples at pooled `indices`, N x shape: as stored, transformed, and images normalized if so wanted."""
        out = np.empty((len(indices), *self.shape), self.parts[0].dtype)
        for number, part in enumerate(self.parts):
            places, local = self._within(number, indices)
            x = transforms.apply(transform, self._padded(part.samples(local)))
            if normalized:
                part.normalize(x)
            out[places] = x
        return out

    def _padded(self, x: Array) -> Array:
        if x.shape[1:] == self.shape:
            return x
        _, height, width = self.shape
        out = np.zeros((len(x), *self.shape), x.dtype)
        top, left = (height - x.shape[2]) // 2, (width - x.shape[3]) // 2
        out[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
        return out

    def _within(self, number: int, indices: Indices) -> tuple[Indices, Indices]:
        """The places in `indices` that belong to a part, and their indices in that part's own pooled samples."""
        if len(self.parts) == 1:
            return np.arange(len(indices)), indices
        trains = np.cumsum([0, *(len(p.y_train) for p in self.parts)])
        tests = trains[-1] + np.cumsum([0, *(len(p.y_test) for p in self.parts)])
        train = (trains[number] <= indices) & (indices < trains[number + 1])
        test = (tests[number] <= indices) & (indices < tests[number + 1])
        places = np.flatnonzero(train | test)
        local = np.where(train, indices - trains[number], indices - tests[number] + len(self.parts[number].y_train))
        return places, local[places]


def data_root(given: str = "") -> Path:
    """Where NAME.npz lies: the configured folder, else $FEDSIM_DATA, else the user's cache."""
    return Path(given or os.environ.get("FEDSIM_DATA") or Path.home() / ".cache" / "fedsim" / "data").expanduser()


def find(name: str, root: str = "") -> Single | Composite:
    """The description of the dataset of this name; raises ConfigError with the known names for another."""
    if Path(name).is_absolute():
        return Single(name, f"the data at {name}")
    if name.startswith(hub.PREFIX) and "+" not in name:
        return Single(name, f"{name.removeprefix(hub.PREFIX)} of the Hugging Face hub")
    if name in registry.providers("dataset"):
        spec: Single | Composite = registry.find("dataset", name)
        return spec
    if "+" in name:
        parts = tuple(part.strip() for part in name.split("+"))
        for part in parts:
            find(part, root)
        return Composite(name, f"{', '.join(parts)} side by side, sharing their labels", parts, "together")
    if Path(name).name == name and (own := sources.user_data(name, data_root(root))):
        return Single(name, f"the data at {own}")
    if Path(name).exists():
        raise ConfigError(f"dataset={name}: name data of your own by its absolute path, {Path(name).absolute()}")
    return unknown("dataset", name, [f"a file {data_root(root) / name}.npz", *registry.names("dataset")])


def load(
    name: str,
    root: str = "",
    params: DataParams = USUAL,
    progress: Progress | None = None,
) -> Dataset:
    """A dataset by name, prepared if this is the first time it is used with these parameters."""
    spec = find(name, root)
    names = (name,) if isinstance(spec, Single) else spec.parts
    folders = tuple(_prepared(part, data_root(root), params, progress) for part in names)
    apart = isinstance(spec, Composite) and spec.labels == "apart"
    return _joined(name, folders, tuple(map(cache.built, folders)), names, apart)


@memoize
def _joined(
    name: str, folders: tuple[Path, ...], built: tuple[int, ...], names: tuple[str, ...], apart: bool
) -> Dataset:
    parts = tuple(_open(folder) for folder in folders)
    shape = _common_shape(parts, names)
    sizes = [part.classes for part in parts]
    if not apart and len(set(sizes)) > 1:
        listed = ", ".join(f"{n} {c}" for n, c in zip(names, sizes, strict=True))
        raise ConfigError(f"datasets that share their labels must have equally many classes, not {listed}")
    offsets = np.cumsum([0, *sizes])[:-1].tolist() if apart else [0] * len(parts)
    targets = [
        np.concatenate([y + offset for y, offset in zip(ys, offsets, strict=True)])
        for ys in ([part.y_train for part in parts], [part.y_test for part in parts])
    ]
    numbers = np.arange(len(parts))
    source = np.concatenate(
        [np.repeat(numbers, [len(p.y_train) for p in parts]), np.repeat(numbers, [len(p.y_test) for p in parts])]
    )
    classes = sum(sizes) if apart else sizes[0]
    by_class = _has_class_labels(targets[0])
    train, test = targets if by_class else [np.zeros(len(y), np.int64) for y in targets]
    labels = Labels(
        train,
        test,
        classes=classes if by_class else 1,
        users=parts[0].users if len(parts) == 1 else None,
        sources=names,
        source=source if len(parts) > 1 else None,
    )
    return Dataset(name, parts, labels, np.concatenate(targets), classes, shape)


def _common_shape(parts: Sequence[Prepared], names: Sequence[str]) -> tuple[int, ...]:
    """The sample shape of datasets side by side: images are padded to the largest, other samples must be alike."""
    if len({part.objective for part in parts}) == 1:
        if all(part.is_images for part in parts):
            return tuple(np.max([part.shape for part in parts], axis=0).tolist())
        if len({(part.shape, part.dtype, part.y_train.shape[1:], part.y_train.dtype) for part in parts}) == 1:
            return parts[0].shape
    listed = ", ".join(f"{n} {p.dtype} {p.shape} for {p.objective}" for n, p in zip(names, parts, strict=True))
    raise ConfigError(f"datasets side by side must have one objective and be images or samples of one shape: {listed}")


def _has_class_labels(targets: Array) -> bool:
    """Whether every sample has one whole number, by which samples can be split."""
    return targets.ndim == 1 and targets.dtype.kind == "i"


def _prepared(name: str, root: Path, params: DataParams, progress: Progress | None) -> Path:
    """The folder of a single dataset's prepared arrays."""
    spec = find(name, str(root))
    if isinstance(spec, Composite):
        raise ConfigError(f"dataset {name!r} is itself made of {', '.join(spec.parts)}: name these instead")
    source = sources.find(name, spec, root, params)
    normalization = spec.mean, spec.std, spec.signals
    key = cache.key(FORMAT, spec.name, spec.classes, *normalization, spec.objective, *source.origin)

    def build(folder: Path) -> None:
        with Scratch(folder) as scratch:
            _write(source.read(scratch), folder, progress)

    return cache.build_once(cache.root() / "datasets" / f"{Path(name).stem}-{key}", build)


def _write(raw: Raw, folder: Path, progress: Progress | None) -> None:
    """Arrays and a small manifest. The fingerprint covers every byte: same data, same splits, on every machine."""
    digest, total, dtype = list[str](), len(raw.x_train) + len(raw.x_test), raw.dtype or raw.x_train.dtype

    def blocks(x: Array, before: int) -> Iterator[Array]:
        step = rows_of(x, dtype)
        for start in range(0, len(x), step):
            block = np.ascontiguousarray(x[start : start + step], dtype)
            yield block
            digest.append(cache.digest(block))
            if progress:
                progress(before + start + len(block), total)

    for part, x, before in (("train", raw.x_train, 0), ("test", raw.x_test, len(raw.x_train))):
        write_npy(folder / f"x_{part}.npy", blocks(x, before), dtype, x.shape)
    others = {"y_train": raw.y_train, "y_test": raw.y_test, "users": raw.users}
    for name, values in others.items():
        if values is not None:
            write_npy(folder / f"{name}.npy", [values], values.dtype, values.shape)
            digest.append(cache.digest(values))
    mean, std = raw.spec.mean, raw.spec.std
    if not mean and (raw.x_train.ndim == 4 or raw.spec.signals):
        mean, std = moments(np.load(folder / "x_train.npy", mmap_mode="r"))
    if raw.tokens:
        write_text(folder / TOKENS, text.listed(raw.tokens))
    about = {
        "classes": _classes(raw),
        "objective": raw.spec.objective,
        "mean": mean,
        "std": std,
        "fingerprint": cache.key(*digest),
        "vocabulary": raw.vocabulary,
        "numbers": raw.spec.numbers,
        "numbered": raw.numbered,
    }
    write_json(folder / "about.json", about, durable=False)


def _classes(raw: Raw) -> int:
    if raw.y_train.dtype.kind == "f":
        return 0
    return raw.spec.classes or int(max(raw.y_train.max(), raw.y_test.max())) + 1


def _open(folder: Path) -> Prepared:
    about = json.loads((folder / "about.json").read_text())
    arrays = {p.stem: np.load(p, mmap_mode="r") for p in folder.glob("*.npy")}
    return Prepared(
        **{"users": None, **arrays},
        classes=about["classes"],
        objective=about["objective"],
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        fingerprint=about["fingerprint"],
        vocabulary=about["vocabulary"],
        numbers=about["numbers"],
        numbered=tuple(about["numbered"]),
        tokens=folder / TOKENS if (folder / TOKENS).exists() else None,
    )
