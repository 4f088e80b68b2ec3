"""Checkpoints: the states of the server and of simulated clients, RUN/checkpoint/step-000020.npz. The last two are kept:
if the newest was damaged, the one before it takes its place.

Arrays are stored as arrays and the structure around them as JSON: no pickle, so a checkpoint cannot run code. Random
draws need no state: every one is keyed by (seed, client, step, purpose). The file ends with a checksum over all of it.
"""

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zipfile import ZipFile

import numpy as np

from fedsim.client_table import ClientTable, table_fields
from fedsim.errors import DamagedError, FedsimError
from fedsim.files import check_seal, write_npz
from fedsim.payload import ClientState
from fedsim.server.clock import PendingJob

FOLDER = "checkpoint"
KEPT = 2  # checkpoints
NAME = re.compile(r"step-(\d+)\.npz")
TREE, FORMAT = "tree", "format"  # the npz entries of the structure and of the version of this format
VERSION = 3  # 1: fedsim 0.1, without `Weights`; 2: without `lines`
log = logging.getLogger(__name__)


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
    lines: int = 0  # of events.jsonl, which this checkpoint relies on
    refused: dict[int, int] = field(default_factory=dict)  # client -> how many of its answers were refused in a row
    benched: list[int] = field(default_factory=list)  # clients that get no more jobs for it


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint into a run folder and removes all others but the one before it. When it returns, the checkpoint
    is on the disk; raises StorageError if it does not fit there."""
    path = folder / FOLDER / file_name(checkpoint.step)
    write_npz(path, dump(checkpoint))
    keep_until(folder, checkpoint.step)


def file_name(step: int) -> str:
    return f"step-{step:06d}.npz"


def saved_steps(folder: Path) -> list[int]:
    """The steps after which the checkpoints of a run folder were written, in order."""
    return sorted(_files(folder))


def newest(
    folder: Path, state: type[Any], fresh: Any = None, accepts: Callable[[Checkpoint], bool] = lambda found: True
) -> Checkpoint | None:
    """The last checkpoint in a run folder that is whole and that `accepts` agrees to, or None if there is no checkpoint.
    If it agrees to none of them, the last whole one.

    `state` is the dataclass of the strategy's state. Tables with a row per client are read into those of `fresh`, a state
    that is not needed any more, if it is given. Raises FedsimError if every checkpoint is damaged, or if one cannot be
    read because another version wrote it.
    """
    files, whole, damaged = _files(folder), list[int](), list[str]()
    chosen = None
    for step in sorted(files, reverse=True):
        try:
            check_seal(files[step])
        except DamagedError as error:
            damaged.append(str(error))
            continue
        except OSError as error:
            raise FedsimError(f"checkpoint {files[step]} cannot be read: {error.strerror}") from error
        whole.append(step)
        if accepts(chosen := _read(files[step], state, fresh)):
            break
    else:
        if damaged and not whole:
            raise FedsimError(f"{'; '.join(damaged)}. No checkpoint is left: begin the run again in another folder")
        if len(whole) > 1:
            chosen = _read(files[whole[0]], state, fresh)
    if chosen is not None and chosen.step < max(files):
        for problem in damaged or [f"{folder}: the events before its last checkpoint are not complete"]:
            log.warning("%s. The run goes on from the checkpoint of round %d", problem, chosen.step)
    return chosen


def keep_until(folder: Path, step: int) -> None:
    """Removes all checkpoints but that of `step` and the one before it. Those after it are no part of the history of a run
    that goes on from there."""
    kept = [found for found in saved_steps(folder) if found <= step][-KEPT:]
    for found, path in _files(folder).items():
        if found not in kept:
            path.unlink()


def _read(path: Path, state: type[Any], fresh: Any) -> Checkpoint:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            _check_version(content)
            tables = {} if fresh is None else _tables(content[TREE], fresh)
            arrays = {name: content[name] for name in content.files if name not in tables}
        for name, table in tables.items():
            _read_into(table, path, name)
        restored = undump({**arrays, **tables}, (Checkpoint, ClientState, state))
        if not isinstance(restored, Checkpoint):
            raise ValueError(f"it holds a {type(restored).__name__}")
        if not isinstance(restored.step, int) or path.name != file_name(restored.step):
            raise ValueError(f"it holds step {restored.step!r}")
    except Exception as error:  # its bits are those that were written: another version wrote it, or another program
        raise FedsimError(
            f"checkpoint {path} cannot be read by this version: {error or type(error).__name__}"
        ) from error
    return restored


def _files(folder: Path) -> dict[int, Path]:
    found = {path: NAME.fullmatch(path.name) for path in (folder / FOLDER).glob("step-*.npz")}
    return {int(match[1]): path for path, match in found.items() if match}


def dump(value: Any) -> dict[str, np.ndarray[Any, Any]]:
    """A value of dataclasses, dicts, lists, tuples, arrays and scalars as named arrays; TypeError for anything else."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _plain(value, arrays)
    return {**arrays, TREE: np.frombuffer(json.dumps(tree).encode(), np.uint8), FORMAT: np.array(VERSION)}


def undump(arrays: Mapping[str, np.ndarray[Any, Any]], kinds: tuple[type[Any], ...]) -> Any:
    """The value that `dump` got; `kinds` are the dataclasses that may occur, besides those in their fields' types.

    Raises ValueError for arrays that another version wrote, or another program.
    """
    _check_version(arrays)
    known: dict[str, type[Any]] = {}
    for kind in kinds:
        _collect(kind, known)
    try:
        return _rich(json.loads(arrays[TREE].tobytes()), arrays, known)
    except Exception as error:  # a structure that `dump` does not make
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _check_version(arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    found = int(arrays[FORMAT]) if FORMAT in arrays and arrays[FORMAT].shape == () else 1
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
