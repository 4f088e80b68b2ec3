"""Checkpoints: one .npz file with the states of the server and of simulated clients, written completely or not at all.

Arrays are stored as arrays and the structure around them as JSON: no pickle, so a checkpoint cannot run code. Random
draws need no state: every one is keyed by (seed, client, step, purpose).
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zipfile import BadZipFile, ZipFile

import numpy as np

from fedsim.client_table import ClientTable, table_fields
from fedsim.errors import FedsimError
from fedsim.files import write_npz
from fedsim.payload import ClientState
from fedsim.server.clock import PendingJob

FOLDER = "checkpoint"
TREE, FORMAT = "tree", "format"  # the npz entries of the structure and of the version of this format
VERSION = 2  # 1: fedsim 0.1, without `Weights`


@dataclass
class Checkpoint:
    """A run after `step` server steps."""

    step: int
    now: float
    bytes_up: int
    bytes_down: int
    state: Any
    client_states: dict[int, ClientState]
    absent_until: dict[int, float]  # clients that dropped out -> when they are back
    pending: list[PendingJob]  # jobs in flight, with their results


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint into a run folder, then removes those before it."""
    path = folder / FOLDER / f"step-{checkpoint.step:06d}.npz"
    older = [p for p in path.parent.glob("step-*.npz") if p != path]
    write_npz(path, dump(checkpoint))
    for stale in older:
        stale.unlink()


def newest(folder: Path, state: type[Any], fresh: Any = None) -> Checkpoint | None:
    """The last checkpoint in a run folder, or None. `state` is the dataclass of the strategy's state.

    Tables with a row per client are read into those of `fresh`, a state that is not needed any more, if it is given.
    Raises FedsimError if the checkpoint cannot be read, because it is damaged or of another version.
    """
    found = sorted((folder / FOLDER).glob("step-*.npz"))
    if not found:
        return None
    try:
        with found[-1].open("rb") as file, np.load(file, allow_pickle=False) as content:
            _check_version(content)
            tables = {} if fresh is None else _tables(content[TREE], fresh)
            arrays = {name: content[name] for name in content.files if name not in tables}
        for name, table in tables.items():
            _read_into(table, found[-1], name)
        arrays |= tables
        restored: Checkpoint = undump(arrays, (Checkpoint, ClientState, state))
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise FedsimError(
            f"checkpoint {found[-1]} cannot be read, it is damaged or of another version: {error}"
        ) from error
    return restored


def dump(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    """A value of dataclasses, dicts, lists, tuples, arrays and scalars as named arrays; TypeError for anything else."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _plain(value, arrays)
    return {**arrays, TREE: np.frombuffer(json.dumps(tree).encode(), np.uint8), FORMAT: np.array(VERSION)}


def undump(arrays: Mapping[str, np.ndarray[Any, Any]], kinds: tuple[type[Any], ...]) -> Any:
    """The value that `dump` got; `kinds` are the dataclasses that may occur, besides those in their fields' types.

    Raises ValueError for arrays that another version wrote, and KeyError or TypeError for damaged ones.
    """
    _check_version(arrays)
    known: dict[str, type[Any]] = {}
    for kind in kinds:
        _collect(kind, known)
    return _rich(json.loads(arrays[TREE].tobytes()), arrays, known)


def _check_version(arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    found = int(arrays[FORMAT]) if FORMAT in arrays else 1
    if found != VERSION:
        raise ValueError(f"it has format {found}, and this version of fedsim reads format {VERSION}")


def _tables(tree: np.ndarray[Any, Any], fresh: Any) -> dict[str, ClientTable]:
    """The tables of a fresh state, by the name of the entry that is to be read into each."""
    stored = json.loads(tree.tobytes())["fields"]["state"]["fields"]
    return {stored[field]["array"]: getattr(fresh, field) for field in table_fields(type(fresh))}


def _read_into(table: ClientTable, path: Path, name: str) -> None:
    """Reads an entry row by row: the table may be larger than the memory."""
    with ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if (shape, dtype) != (table.shape, table.dtype):
            raise ValueError(f"it has a table of {shape} {dtype} instead of {table.shape} {table.dtype}")
        for row in table:
            row[:] = np.frombuffer(file.read(row.nbytes), row.dtype)


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
    """Adds a dataclass, and every dataclass in its fields' types, to `known`."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in known:
        known[kind.__name__] = kind
        for hint in get_type_hints(kind).values():
            _collect(hint, known)
    for argument in get_args(kind):
        _collect(argument, known)
