"""The JSON files of LEAF: `train/*.json` and `test/*.json`, each with `users` and their `user_data`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.official import reading
from fedsim.partitions.raw import PARTS, Raw, validated
from fedsim.partitions.split import Array

Convert = Callable[[Path, str, list[Any], list[Any]], tuple[Array, Array]]  # file, user, x, y -> samples, targets


def femnist(spec: Single, folder: Path, params: DataParams, scratch: Scratch) -> Raw:
    """Images 28x28 by writer. LEAF's have white paper, 1.0; ours are bright on black, as MNIST is."""

    def images(file: Path, user: str, x: list[Any], y: list[Any]) -> tuple[Array, Array]:
        with reading(file):
            pixels = np.asarray(x, np.float64).reshape(len(x), 28, 28)
        return np.rint(255 * (1 - pixels)).clip(0, 255).astype(np.uint8), np.asarray(y, np.int64)

    arrays, users = stacked(folder, images, scratch)
    return validated(arrays, spec, str(folder), users)


def stacked(folder: Path, convert: Convert, scratch: Scratch) -> tuple[dict[str, Array], Array]:
    """The arrays of both parts, and the user of each sample; one file is in memory at a time."""
    arrays: dict[str, Array] = {}
    users: list[str] = []
    for part in PARTS:
        files = sorted((folder / part).glob("*.json"))
        if not files:
            raise ConfigError(f"{folder / part} holds no *.json file of LEAF")
        stack, targets = scratch.stack(), []
        for file in files:
            with reading(file):
                told = json.loads(file.read_text(encoding="utf8"))
                people = [
                    (str(user), told["user_data"][user]["x"], told["user_data"][user]["y"]) for user in told["users"]
                ]
            for user, x, y in people:
                if len(x) != len(y):
                    raise ConfigError(f"{file}: user {user} has {len(x)} samples but {len(y)} targets")
                if x:
                    samples, labels = convert(file, user, x, y)
                    stack.add(samples)
                    targets.append(labels)
                    users += [user] * len(x)
        arrays[f"x_{part}"] = stack.array()
        arrays[f"y_{part}"] = np.concatenate(targets) if targets else np.zeros(0, np.int64)
    return arrays, np.array(users)
