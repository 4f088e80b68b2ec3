"""A folder of images as a dataset: `train/CLASS/*.png`, and `test/CLASS/*.png` if the owner has set tests apart.

The sorted class names give the labels. Silos whose classes differ share a `classes.txt`, one name per line in the order
of the labels, so that a label means the same everywhere. Without `test` a fifth of every class is held out, always the
same one. All images must have one size. Grey images stay one channel unless others are in colour; transparency is dropped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from fedsim.errors import ConfigError
from fedsim.rng import stream
from partitions.catalogue import Single
from partitions.natural import TEST_SHARE
from partitions.sources import PARTS, Array, Raw, checked

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
NAMES = "classes.txt"
GREY, TOO_DEEP = ("1", "L", "LA"), ("I", "F")  # Pillow's modes; the second have more than 8 bits a channel
Files = dict[str, list[Path]]  # class -> its images


def is_folder(path: Path) -> bool:
    return (path / "train").is_dir()


def traces(folder: Path) -> list[tuple[str, int, int]]:
    """What changes when an image is added, removed or written again."""
    files = chain(folder.glob(NAMES), *(_images(c) for part in PARTS for c in _classes(folder / part)))
    return [(str(f.relative_to(folder)), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]


def from_folder(folder: Path, spec: Single) -> Raw:
    parts = {part: _listed(folder / part) for part in PARTS if (folder / part).is_dir()}
    labels = _labels(folder, {name for files in parts.values() for name in files})
    if "test" not in parts:
        parts["train"], parts["test"] = _held_out(parts["train"])
    wanted = [(labels[c], file) for part in PARTS for c, files in parts[part].items() for file in files]
    x, y = _pixels([file for _, file in wanted]), np.array([label for label, _ in wanted], np.int64)
    n = sum(map(len, parts["train"].values()))
    arrays = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
    return checked(arrays, replace(spec, classes=spec.classes or len(labels)), str(folder))


def _classes(part: Path) -> list[Path]:
    return sorted(c for c in part.glob("*") if c.is_dir() and not c.name.startswith("."))


def _images(folder: Path) -> Iterator[Path]:
    return (f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))


def _listed(part: Path) -> Files:
    """The images of each class, in the order of their names."""
    found = {folder.name: sorted(_images(folder)) for folder in _classes(part)}
    if not found:
        raise ConfigError(f"{part} holds no class folders; expected {part}/CLASS/*.png")
    for name, files in found.items():
        if not files:
            raise ConfigError(f"{part / name} holds no image; expected files ending in {', '.join(SUFFIXES)}")
    return found


def _labels(folder: Path, found: set[str]) -> dict[str, int]:
    """Class names and what each stands for."""
    names = sorted(found)
    if (listed := folder / NAMES).is_file():
        names = [line.strip() for line in listed.read_text(errors="replace").splitlines() if line.strip()]
        if wrong := sorted(found - set(names)) or [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"{listed} must list every class once, one per line; it does not for {wrong[0]!r}")
    return {name: label for label, name in enumerate(names)}


def _held_out(files: Files) -> tuple[Files, Files]:
    """The same fifth of every class on every machine; a class of one image keeps it for training."""
    train, test = {}, {}
    for name, own in files.items():
        count = min(len(own) - 1, max(1, round(TEST_SHARE * len(own))))
        held = set(stream(0, "held out", name).permutation(len(own))[:count].tolist())
        train[name] = [file for i, file in enumerate(own) if i not in held]
        test[name] = [file for i, file in enumerate(own) if i in held]
    return train, test


def _pixels(files: Sequence[Path]) -> Array:
    """N x H x W, or N x H x W x 3; the headers are looked at first, so that a misfit costs no decoding."""
    from PIL import Image  # it comes with torchvision, and only those who prepare a folder need it

    sizes, modes = [], []
    for file in files:
        try:
            with Image.open(file) as image:
                sizes.append(image.size)
                modes.append(image.mode)
        except Exception as error:
            raise _unreadable(file, error) from error
    for file, size, mode in zip(files, sizes, modes, strict=True):
        if size != sizes[0]:
            raise ConfigError(
                f"{file} is {size[0]}x{size[1]} but {files[0]} is {sizes[0][0]}x{sizes[0][1]} (width x height): "
                "bring all images to one size first"
            )
        if mode.split(";")[0] in TOO_DEEP:
            raise ConfigError(f"{file} has more than 8 bits a channel: convert it, or bring the data as an npz file")
    mode = "L" if all(mode in GREY for mode in modes) else "RGB"
    width, height = sizes[0]
    out = np.empty((len(files), height, width, *((3,) if mode == "RGB" else ())), np.uint8)
    for place, file in zip(out, files, strict=True):
        try:
            with Image.open(file) as image:
                place[...] = image.convert(mode)
        except Exception as error:
            raise _unreadable(file, error) from error
    return out


def _unreadable(file: Path, error: Exception) -> ConfigError:
    """Decoders fail in many ways; whichever it was, the file is what the user has to look at."""
    return ConfigError(f"{file} cannot be read as an image: {str(error).splitlines()[0] if str(error) else error!r}")
