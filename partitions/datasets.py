"""A dataset by name: found, prepared once into memory-mapped arrays, and read by every process after that.

`ROOT/NAME.npz` comes first, then a folder of images `ROOT/NAME/`: what is the user's wins over any download. Then
scikit-learn (digits) or torchvision. An absolute path names a file or folder itself, which is how a silo brings its own
data without code. `A+B` names several datasets side by side that share their labels.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remember
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.errors import ConfigError, unknown
from partitions import cache, images, sources
from partitions.catalogue import Composite, Single
from partitions.sources import Array
from partitions.split import Indices, Labels

FORMAT = 1  # raise when the prepared arrays change
BLOCK = 4096  # samples per step of the progress bar
Progress = Callable[[int, int], None]  # done, of how many samples


@dataclass(frozen=True)
class Prepared:
    """One dataset as memory-mapped arrays, images N x C x H x W."""

    x_train: Array
    y_train: Indices
    x_test: Array
    y_test: Indices
    users: NDArray[np.str_] | None
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str

    def images(self, indices: Indices) -> NDArray[np.float32]:
        """The samples at pooled `indices`, as stored: 0..255, or the floats a silo brought."""
        n = len(self.x_train)
        out = np.empty((len(indices), *self.x_train.shape[1:]), np.float32)
        train = indices < n
        out[train] = self.x_train[indices[train]]
        out[~train] = self.x_test[indices[~train] - n]
        return out

    def normalise(self, x: NDArray[np.float32]) -> None:
        """Images as stored -> mean 0 and deviation 1 per channel, in place."""
        scale = 255 if self.x_train.dtype == np.uint8 else 1
        mean, std = (np.array(v, np.float32)[:, None, None] for v in (self.mean, self.std))
        x -= mean * scale
        x /= std * scale


@dataclass(frozen=True)
class Dataset:
    """One prepared dataset, or several brought to one shape: small images are padded with zeros, grey ones repeated."""

    name: str
    parts: tuple[Prepared, ...]
    labels: Labels
    shape: tuple[int, int, int]  # channels, height, width

    @property
    def classes(self) -> int:
        return self.labels.classes

    @property
    def fingerprint(self) -> str:
        return cache.key(self.classes, [part.fingerprint for part in self.parts])

    def images(self, indices: Indices, normalised: bool = True) -> NDArray[np.float32]:
        """The samples at pooled `indices`: N x C x H x W."""
        out = np.empty((len(indices), *self.shape), np.float32)
        for number, part in enumerate(self.parts):
            mine, local = self._within(number, indices)
            x = self._padded(part.images(local))
            if normalised:
                part.normalise(x)
            out[mine] = x
        return out

    def _padded(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        _, height, width = self.shape
        if x.shape[1:] == self.shape:
            return x
        out = np.zeros((len(x), *self.shape), np.float32)
        top, left = (height - x.shape[2]) // 2, (width - x.shape[3]) // 2
        out[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
        return out

    def _within(self, number: int, indices: Indices) -> tuple[Indices, Indices]:
        """Which of `indices` belong to a part, and where they lie in that part's own pooled space."""
        if len(self.parts) == 1:
            return np.arange(len(indices)), indices
        trains = np.cumsum([0, *(len(p.y_train) for p in self.parts)])
        tests = trains[-1] + np.cumsum([0, *(len(p.y_test) for p in self.parts)])
        train = (trains[number] <= indices) & (indices < trains[number + 1])
        test = (tests[number] <= indices) & (indices < tests[number + 1])
        mine = np.flatnonzero(train | test)
        local = np.where(train, indices - trains[number], indices - tests[number] + len(self.parts[number].y_train))
        return mine, local[mine]


def data_root(given: str = "") -> Path:
    """Where NAME.npz lies: the configured folder, else $FEDSIM_DATA, else the user's cache."""
    return Path(given or os.environ.get("FEDSIM_DATA") or Path.home() / ".cache" / "fedsim" / "data").expanduser()


def find(name: str, root: str = "") -> Single | Composite:
    """What a dataset name stands for, or a refusal that lists the names and says how to bring a file."""
    if Path(name).is_absolute():
        return Single(name, f"the data at {name}")
    if name in registry.providers("dataset"):
        spec: Single | Composite = registry.find("dataset", name)
        return spec
    if "+" in name:
        parts = tuple(part.strip() for part in name.split("+"))
        for part in parts:
            find(part, root)
        return Composite(name, f"{', '.join(parts)} side by side, sharing their labels", parts, "together")
    if Path(name).name == name and (own := brought(name, data_root(root))):
        return Single(name, f"the data at {own}")
    return unknown("dataset", name, [f"a file {data_root(root) / name}.npz", *registry.names("dataset")])


def brought(name: str, root: Path) -> Path | None:
    """The user's own npz file or image folder under this name; an absolute path has to be one."""
    if Path(name).is_absolute():
        if not Path(name).is_file() and not images.is_folder(Path(name)):
            raise ConfigError(
                f"{name} is {'no image folder' if Path(name).is_dir() else 'not there'}; expected an npz file with "
                "x_train, y_train, x_test, y_test, or a folder with train/CLASS/*.png"
            )
        return Path(name)
    file, folder = root / f"{name}.npz", root / name
    return file if file.is_file() else folder if images.is_folder(folder) else None


def load(name: str, root: str = "", progress: Progress | None = None) -> Dataset:
    """A dataset by name, prepared if this is the first time it is used."""
    spec = find(name, root)
    names = (name,) if isinstance(spec, Single) else spec.parts
    folders = tuple(_prepared(part, data_root(root), progress) for part in names)
    return _joined(name, folders, names, apart=isinstance(spec, Composite) and spec.labels == "apart")


@remember
def _joined(name: str, folders: tuple[Path, ...], names: tuple[str, ...], apart: bool) -> Dataset:
    parts = tuple(_open(folder) for folder in folders)
    sizes = [part.classes for part in parts]
    if not apart and len(set(sizes)) > 1:
        listed = ", ".join(f"{n} {c}" for n, c in zip(names, sizes, strict=True))
        raise ConfigError(f"datasets that share their labels must have equally many classes, not {listed}")
    offsets = np.cumsum([0, *sizes]) if apart else np.zeros(len(parts) + 1, np.int64)
    train = np.concatenate([part.y_train + o for part, o in zip(parts, offsets[:-1], strict=True)])
    test = np.concatenate([part.y_test + o for part, o in zip(parts, offsets[:-1], strict=True)])
    numbers = np.arange(len(parts))
    source = np.concatenate(
        [np.repeat(numbers, [len(p.y_train) for p in parts]), np.repeat(numbers, [len(p.y_test) for p in parts])]
    )
    channels, height, width = np.max([part.x_train.shape[1:] for part in parts], axis=0).tolist()
    labels = Labels(
        train,
        test,
        classes=int(offsets[-1]) if apart else sizes[0],
        users=parts[0].users if len(parts) == 1 else None,
        sources=names,
        source=source if len(parts) > 1 else None,
    )
    return Dataset(name, parts, labels, (channels, height, width))


def _prepared(name: str, root: Path, progress: Progress | None) -> Path:
    """The folder of a single dataset's prepared arrays."""
    spec = find(name, str(root))
    if isinstance(spec, Composite):
        raise ConfigError(f"dataset {name!r} is itself made of {', '.join(spec.parts)}: name these instead")
    own = brought(name, root)
    origin: list[object]
    read: Callable[[], sources.Raw]
    if own is not None and own.is_file():
        stat = own.stat()
        origin = ["npz", str(own.resolve()), stat.st_size, stat.st_mtime_ns]
        read = partial(sources.from_npz, own, spec)
    elif own is not None:
        origin = ["images", str(own.resolve()), images.traces(own)]
        read = partial(images.from_folder, own, spec)
    elif spec.reader:
        origin, read = [spec.reader], partial(registry.load(spec.reader), spec)
    else:
        origin = ["torchvision", str(root.resolve())]
        read = partial(sources.from_torchvision, spec, root / f"{name}.npz")
    key = cache.key(FORMAT, spec.name, spec.mean, spec.std, *origin)
    folder = cache.home() / "datasets" / f"{Path(name).stem}-{key}"
    return cache.once(folder, lambda empty: _write(read(), empty, progress))


def _write(raw: sources.Raw, folder: Path, progress: Progress | None) -> None:
    """Arrays and a small manifest. The fingerprint covers every byte: same data, same splits, on every machine."""
    digest, done, total = [], 0, len(raw.x_train) + len(raw.x_test)
    for part, x in (("train", raw.x_train), ("test", raw.x_test)):
        kept = np.lib.format.open_memmap(folder / f"x_{part}.npy", "w+", x.dtype, x.shape)
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            kept[start : start + BLOCK] = block
            digest.append(cache.digest(block))
            done += len(block)
            if progress:
                progress(done, total)
        kept.flush()
    for part, y in (("train", raw.y_train), ("test", raw.y_test)):
        np.save(folder / f"y_{part}.npy", y)
        digest.append(cache.digest(y))
    if raw.users is not None:
        np.save(folder / "users.npy", raw.users)
        digest.append(cache.digest(raw.users))
    mean, std = (raw.spec.mean, raw.spec.std) if raw.spec.mean else _moments(raw.x_train)
    classes = raw.spec.classes or int(max(raw.y_train.max(), raw.y_test.max())) + 1
    about = {"classes": classes, "mean": mean, "std": std, "fingerprint": cache.key(*digest)}
    (folder / "about.json").write_text(json.dumps(about))


def _moments(x: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel on the scale of `Prepared.normalise`; a constant channel keeps deviation 1."""
    scale, pixels = (255 if x.dtype == np.uint8 else 1), x.shape[0] * x.shape[2] * x.shape[3]

    def total(centre: NDArray[np.float64], power: int) -> NDArray[np.float64]:
        """Per channel, over blocks: a float64 copy of everything might not fit in memory."""
        blocks = (x[start : start + BLOCK] / scale - centre[:, None, None] for start in range(0, len(x), BLOCK))
        return np.asarray(sum((block**power).sum(axis=(0, 2, 3), dtype=np.float64) for block in blocks))

    mean = total(np.zeros(x.shape[1]), 1) / pixels
    squares = total(mean, 2)
    return tuple(mean.tolist()), tuple(np.where(squares > 0, np.sqrt(squares / pixels), 1).tolist())


def _open(folder: Path) -> Prepared:
    about = json.loads((folder / "about.json").read_text())
    arrays = {p.stem: np.load(p, mmap_mode="r") for p in folder.glob("*.npy")}
    return Prepared(
        **{"users": None, **arrays},
        classes=about["classes"],
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        fingerprint=about["fingerprint"],
    )
