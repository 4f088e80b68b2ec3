"""A folder of images as a dataset: `train/CLASS/*.png`, and optionally `test/CLASS/*.png`.

The sorted class names give the labels. Silos whose classes differ share a `classes.txt`, one name per line in the order
of the labels, so that a label means the same everywhere. Without `test` a fifth of every class is held out, always the
same one. All images must have one size, unless `data.size` scales them. Grey images keep one channel unless others have
color; transparency is dropped.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import images
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.raw import PARTS, Raw, held_out, validated

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
NAMES = "classes.txt"
Files = dict[str, list[Path]]  # class -> its images


def is_image_folder(path: Path) -> bool:
    """Whether it has class folders; a folder of other files, such as LEAF's, is none."""
    return (path / "train").is_dir() and not any((path / "train").glob("*.json"))


def file_stamps(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file that is read: another list means other data."""
    files = chain(folder.glob(NAMES), *(_images(c) for part in PARTS for c in _classes(folder / part)))
    return [(str(f.relative_to(folder)), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]


def from_folder(folder: Path, spec: Single, params: DataParams, scratch: Scratch) -> Raw:
    """The images and labels of `folder`; raises ConfigError with the file or folder that cannot be used."""
    parts = {part: _files_by_class(folder / part) for part in PARTS if (folder / part).is_dir()}
    labels = _labels(folder, {name for files in parts.values() for name in files})
    if "test" not in parts:
        parts["train"], parts["test"] = _held_out(parts["train"])
    wanted = [(labels[c], file) for part in PARTS for c, files in parts[part].items() for file in files]
    x = images.stacked([file for _, file in wanted], params.size, scratch)
    y = np.array([label for label, _ in wanted], np.int64)
    n = sum(map(len, parts["train"].values()))
    arrays = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
    return validated(arrays, replace(spec, classes=spec.classes or len(labels)), str(folder))


def _classes(part: Path) -> list[Path]:
    return sorted(c for c in part.glob("*") if c.is_dir() and not c.name.startswith("."))


def _images(folder: Path) -> Iterator[Path]:
    return (f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))


def _files_by_class(part: Path) -> Files:
    """The images of each class, in the order of their names."""
    found = {folder.name: sorted(_images(folder)) for folder in _classes(part)}
    if not found:
        raise ConfigError(f"{part} holds no class folders; expected {part}/CLASS/*.png")
    for name, files in found.items():
        if not files:
            raise ConfigError(f"{part / name} holds no image; expected files ending in {', '.join(SUFFIXES)}")
    return found


def _labels(folder: Path, found: set[str]) -> dict[str, int]:
    """Class name -> label, in the order of `classes.txt` or of the names."""
    names = sorted(found)
    if (listed := folder / NAMES).is_file():
        names = [line.strip() for line in listed.read_text(errors="replace").splitlines() if line.strip()]
        if wrong := sorted(found - set(names)) or [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"{listed} must list every class once, one per line; it does not for {wrong[0]!r}")
    return {name: label for label, name in enumerate(names)}


def _held_out(files: Files) -> tuple[Files, Files]:
    """Training and test images: the same fifth of every class on every machine; a single image stays in training."""
    train, test = {}, {}
    for name, own in files.items():
        held = held_out(np.full(len(own), name))
        train[name] = [file for file, is_test in zip(own, held, strict=True) if not is_test]
        test[name] = [file for file, is_test in zip(own, held, strict=True) if is_test]
    return train, test
