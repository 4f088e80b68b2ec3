"""Raw arrays from an npz file, scikit-learn or torchvision."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError, FedsimError
from fedsim.partitions import text
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.raw import PARTS, Raw, check_tokens, tokenized, validated
from fedsim.partitions.split import Array

NEEDED = tuple(f"{a}_{p}" for a in "xy" for p in PARTS)
FURTHER = ("classes", "mean", "std", "objective", "alphabet", "vocabulary")  # what a file may say of itself


def from_npz(path: Path, spec: Single, params: DataParams, scratch: Scratch) -> Raw:
    """Arrays `x_train y_train x_test y_test`, and optionally

    `user_train user_test`  the user that each sample belongs to,
    `classes`               their number or names, for silos that do not hold the last class,
    `mean std`              per channel, for silos that have agreed on a common normalization,
    `objective`             what models are trained for, such as "regression"; "classification" if absent,
    `alphabet`              characters: samples are positions in it, to which token ids add two,
    `vocabulary`            how many token ids there are, for samples that are token ids already.

    Texts (str, or bytes in UTF-8) are tokenized; labels that are texts become numbers in the order of `classes`, else of
    the sorted names. Which arrays are images, and which are taken as they are, is said in `raw.validated`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            if missing := [name for name in NEEDED if name not in names]:
                raise ConfigError(f"{path} lacks {', '.join(missing)}; it needs x_train, y_train, x_test and y_test")
            users = [scratch.npz_member(archive, f"user_{p}").astype(str) for p in PARTS if f"user_{p}" in names]
            further = {key: scratch.npz_member(archive, key) for key in FURTHER if key in names}
            arrays = {name: scratch.npz_member(archive, name) for name in NEEDED}
    except FedsimError:
        raise
    except Exception as error:  # zip archives and arrays can be damaged in many ways
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{path} cannot be read as an npz file: {why}") from error
    if len(users) == 1:
        raise ConfigError(f"{path} holds only one of user_train and user_test; it needs both, or neither")
    owners = np.concatenate(users) if users else None
    arrays, numbered = _numbered(arrays, further.get("classes"), params, str(path))
    raw = _read(arrays, _completed(spec, further, path), path, owners, further, params, scratch)
    return replace(raw, numbered=(*numbered, *raw.numbered))


def _read(
    arrays: dict[str, Array],
    spec: Single,
    path: Path,
    users: Array | None,
    further: dict[str, Array],
    params: DataParams,
    scratch: Scratch,
) -> Raw:
    where = str(path)
    if all(arrays[f"x_{p}"].dtype.kind in "US" and arrays[f"x_{p}"].ndim == 1 for p in PARTS):
        return tokenized(arrays, spec, where, scratch, text.Tokenizer.of(params), users=users)
    if "alphabet" in further:
        letters = str(further["alphabet"])
        for p in PARTS:
            arrays[f"x_{p}"] = scratch.mapped(arrays[f"x_{p}"], lambda block: block.astype(np.int32) + text.FIRST)
        raw = replace(validated(arrays, spec, where, users), vocabulary=text.FIRST + len(letters), tokens=letters)
        return check_tokens(raw, where)
    raw = validated(arrays, spec, where, users)
    vocabulary = int(further.get("vocabulary", np.array(0)))
    return check_tokens(replace(raw, vocabulary=vocabulary), where) if vocabulary else raw


def _numbered(
    arrays: dict[str, Array], classes: Array | None, params: DataParams, where: str
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Labels that are texts as numbers: their places among the names of `classes`, else among all that occur, sorted."""
    if any(arrays[f"y_{p}"].dtype.kind not in "US" for p in PARTS):
        return arrays, ()
    told = classes is not None and classes.dtype.kind in "US"
    labels = {p: text.decoded(arrays[f"y_{p}"], f"{where}: y_{p}") for p in PARTS}
    listed = np.asarray(classes).astype(str).tolist() if told else list(params.classes)
    names = listed or sorted({*labels["train"], *labels["test"]})
    place = {name: number for number, name in enumerate(names)}
    if unknown := sorted({*labels["train"], *labels["test"]} - set(place)):
        raise ConfigError(f"{where} holds the label {unknown[0]!r}, which its classes do not name: {', '.join(names)}")
    numbers = {f"y_{p}": np.array([place[label] for label in labels[p]], np.int64) for p in PARTS}
    return {**arrays, **numbers}, () if listed else ("labels",)


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


def from_torchvision(spec: Single, root: Path) -> Raw:
    """torchvision's copy below `root`, downloaded if it is not there."""
    import torchvision

    arrays = _torchvision_arrays(torchvision.datasets, spec, root / "torchvision")
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
