"""Tiny-ImageNet, Omniglot, MNIST-M, SYN, and the domains of PACS and DomainNet."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import images
from fedsim.partitions.catalogue import Single
from fedsim.partitions.image_folder import SUFFIXES
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.official import reading
from fedsim.partitions.raw import PARTS, Raw, held_out, validated
from fedsim.partitions.split import Array


class Image(NamedTuple):
    file: Path
    label: int
    user: str = ""


Parts = dict[str, list[Image]]


def tiny_imagenet(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`train/WNID/images/*.JPEG`; the tests are the official validation images, `val/images` and `val_annotations.txt`."""
    wnids = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    place = {wnid: label for label, wnid in enumerate(wnids)}
    train = [
        Image(file, place[wnid]) for wnid in wnids for file in sorted((folder / "train" / wnid / "images").iterdir())
    ]
    listed = folder / "val" / "val_annotations.txt"
    with reading(listed):
        rows = [line.split("\t") for line in listed.read_text().splitlines() if line]
        test = [Image(folder / "val" / "images" / name, place[wnid]) for name, wnid, *_ in rows]
    return _read(spec, folder, {"train": train, "test": test}, params, scratch)


def omniglot(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`images_background` and `images_evaluation`: ALPHABET/characterNN/XXXX_DRAWER.png, bright on black, 28x28.

    Drawers 4, 8, 12, 16 and 20 of every character are the tests; drawers are the users.
    """
    characters = sorted(path for path in folder.glob("images_*/*/*") if path.is_dir())
    parts: Parts = {part: [] for part in PARTS}
    for label, character in enumerate(characters):
        for file in sorted(character.glob("*.png")):
            with reading(file):
                drawer = int(file.stem.split("_")[1])
            parts["test" if drawer % 4 == 0 else "train"].append(Image(file, label, str(drawer)))
    return _read(spec, folder, parts, params, scratch, ink=True)


def fetch_omniglot(root: Path) -> Path:
    """torchvision's copy below the data root."""
    import torchvision

    for background in (True, False):
        torchvision.datasets.Omniglot(str(root / "torchvision"), background, download=True)
    return root / "torchvision" / "omniglot-py"


def mnist_m(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`mnist_m_train/*.png` with `mnist_m_train_labels.txt`, a name and a label in every line; and the same for `test`."""
    parts: Parts = {}
    for part in PARTS:
        listed = folder / f"mnist_m_{part}_labels.txt"
        with reading(listed):
            rows = [line.split() for line in listed.read_text().splitlines() if line]
            parts[part] = [Image(folder / f"mnist_m_{part}" / name, int(label)) for name, label in rows]
    return _read(spec, folder, parts, params, scratch)


def syn(spec: Single, file: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`synth_train_32x32.mat` and `synth_test_32x32.mat`, in the format of SVHN: X is 32 x 32 x 3 x N, y N x 1."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    arrays: dict[str, Array] = {}
    for part in PARTS:
        own = file.with_name(file.name.replace("train", part))
        with reading(own):
            try:
                told = loadmat(own)
            except (MatReadError, NotImplementedError) as error:
                raise ValueError(error) from error
            arrays[f"x_{part}"] = np.moveaxis(told["X"], 3, 0)
            arrays[f"y_{part}"] = told["y"].reshape(-1).astype(np.int64) % 10  # SVHN calls the zero 10
    return validated(arrays, spec, str(file))


def domains(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """`DOMAIN/CLASS/*.jpg`, scaled to one size; domains are the users.

    `DOMAIN_train.txt` and `DOMAIN_test.txt` (a file and its label in every line) tell the parts, as DomainNet publishes
    them; without these a fifth of every class of a domain is held out.
    """
    found = sorted(path for path in folder.iterdir() if path.is_dir() and _classes(path))
    if not found:
        raise ConfigError(f"{folder} holds no images DOMAIN/CLASS/*.jpg")
    names = sorted({name for domain in found for name in _classes(domain)})
    parts: Parts = {part: [] for part in PARTS}
    for domain in found:
        lists = {part: folder / f"{domain.name}_{part}.txt" for part in PARTS}
        if all(file.is_file() for file in lists.values()):
            for part, file in lists.items():
                with reading(file):
                    rows = [line.rsplit(maxsplit=1) for line in file.read_text().splitlines() if line]
                    parts[part] += [Image(folder / name, int(label), domain.name) for name, label in rows]
            continue
        own = [Image(f, names.index(n), domain.name) for n in _classes(domain) for f in _files(domain / n)]
        for image, test in zip(own, held_out(np.array([image.label for image in own])), strict=True):
            parts["test" if test else "train"].append(image)
    return _read(spec, folder, parts, params, scratch)


def _classes(domain: Path) -> list[str]:
    return sorted(path.name for path in domain.iterdir() if path.is_dir() and _files(path))


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def _read(spec: Single, where: Path, parts: Parts, params: DataParams, scratch: Scratch, ink: bool = False) -> Raw:
    """`ink`: images are dark on white, and become bright on black."""
    listed = [*parts["train"], *parts["test"]]
    if not all(parts.values()):
        raise ConfigError(f"{where} holds no {'training' if not parts['train'] else 'test'} images")
    x = images.stacked([image.file for image in listed], params.size or spec.size, scratch)
    x = scratch.mapped(x, lambda block: 255 - block) if ink else x
    y = np.array([image.label for image in listed], np.int64)
    n = len(parts["train"])
    arrays: dict[str, Any] = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
    users = np.array([image.user for image in listed]) if listed[0].user else None
    return validated(arrays, spec, str(where), users)
