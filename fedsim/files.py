"""Files of a run folder: written beside and renamed into place, so that they are whole or not there."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    beside = _beside(path)
    beside.write_text(text)
    os.replace(beside, path)


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(path)
    with beside.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        return {name: content[name] for name in content.files}


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")
