"""Checkpoints: one .npz file with the server's state and the clients' memories, written whole or not at all.

Arrays are stored as arrays and the structure around them as JSON: no pickle, so a checkpoint cannot run code. Random draws
need no state: every one is keyed by (seed, client, step, purpose).
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zipfile import BadZipFile

import numpy as np

from fedsim.clock import Flight
from fedsim.errors import FedsimError
from fedsim.files import write_npz
from fedsim.payload import Memory

FOLDER = "checkpoint"
TREE = "tree"  # the npz entry that holds the structure


@dataclass
class Checkpoint:
    """Where a run stands after `step` server steps."""

    step: int
    now: float
    bytes_up: int
    bytes_down: int
    state: Any
    memories: dict[int, Memory]
    away: dict[int, float]  # clients that dropped out, and when they come back
    flights: list[Flight]  # jobs out, with their results


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes the newest checkpoint, then removes the ones before it."""
    path = folder / FOLDER / f"step-{checkpoint.step:06d}.npz"
    older = [p for p in path.parent.glob("step-*.npz") if p != path]
    write_npz(path, dump(checkpoint))
    for stale in older:
        stale.unlink()


def newest(folder: Path, state: type[Any]) -> Checkpoint | None:
    """The last checkpoint of a run whose strategy keeps its state in the dataclass `state`, if there is one."""
    found = sorted((folder / FOLDER).glob("step-*.npz"))
    if not found:
        return None
    try:
        with found[-1].open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        restored: Checkpoint = undump(arrays, (Checkpoint, Memory, state))
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise FedsimError(f"checkpoint {found[-1]} cannot be read: {error}") from error
    return restored


def dump(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    """A value made of dataclasses, dicts, lists, tuples, arrays and scalars -> named arrays."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _plain(value, arrays)
    return {**arrays, TREE: np.frombuffer(json.dumps(tree).encode(), np.uint8)}


def undump(arrays: Mapping[str, np.ndarray[Any, Any]], kinds: tuple[type[Any], ...]) -> Any:
    """The value again; `kinds` are the dataclasses that may occur, with those their fields name."""
    known: dict[str, type[Any]] = {}
    for kind in kinds:
        _collect(kind, known)
    return _rich(json.loads(arrays[TREE].tobytes()), arrays, known)


def arrays_of(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Every array inside a value, by a stable name."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    _plain(value, found)
    return found


def _plain(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"array-{len(arrays):06d}"
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value) and not isinstance(value, type):
        content = {f.name: _plain(getattr(value, f.name), arrays) for f in fields(value)}
        return {"dataclass": type(value).__name__, "fields": content}
    if isinstance(value, Mapping):
        return {"dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_plain(v, arrays) for v in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a {type(value).__name__} cannot be checkpointed: use dataclasses, dicts, lists, arrays and numbers"
    )


def _rich(tree: Any, arrays: Mapping[str, np.ndarray[Any, Any]], known: Mapping[str, type[Any]]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((tag, content),) = [item for item in tree.items() if item[0] != "fields"]
    if tag == "array":
        return arrays[content]
    if tag == "dataclass":
        return known[content](**{k: _rich(v, arrays, known) for k, v in tree["fields"].items()})
    if tag == "dict":
        return {_rich(k, arrays, known): _rich(v, arrays, known) for k, v in content}
    items = [_rich(v, arrays, known) for v in content]
    return tuple(items) if tag == "tuple" else items


def _collect(kind: Any, known: dict[str, type[Any]]) -> None:
    """The dataclass and every dataclass its fields' types mention."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in known:
        known[kind.__name__] = kind
        for hint in get_type_hints(kind).values():
            _collect(hint, known)
    for argument in get_args(kind):
        _collect(argument, known)
