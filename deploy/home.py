"""What a machine is in a federation: `node.json` or `server.json` in its home folder says it; paths are relative to it."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from fedsim.config import Scalar, convert, key_of
from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Node:
    name: str
    superlink: str  # HOST:PORT
    ca: Path
    key: Path  # its own private key
    port: int  # where its ClientApps find it, on its own machine
    config: Mapping[str, Scalar]  # Flower's node-config: partition-id, data, device, state-dir
    versions: Mapping[str, str]
    gpu: str = ""  # CUDA_VISIBLE_DEVICES


@dataclass(frozen=True)
class Server:
    name: str
    host: str
    fleet_port: int
    control_port: int
    ca: Path
    certificate: Path
    key: Path
    versions: Mapping[str, str]
    bind: str = ""  # the address nodes are listened for at; empty: every one


T = TypeVar("T", Node, Server)
NODE, SERVER = "node.json", "server.json"


def read(folder: Path) -> Node | Server:
    found = [name for name in (NODE, SERVER) if (folder / name).is_file()]
    if len(found) != 1:
        raise ConfigError(f"{folder} holds {'both' if found else 'neither'} of {NODE} and {SERVER}; one is expected")
    file = folder / found[0]
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold one JSON object")
    return _build(Node, values, file) if file.name == NODE else _build(Server, values, file)


def _build(kind: type[T], values: Mapping[str, Any], file: Path) -> T:
    hints = get_type_hints(kind)
    if missing := [key_of(f.name) for f in fields(kind) if f.default is MISSING and key_of(f.name) not in values]:
        raise ConfigError(f"{file} lacks {', '.join(missing)}")
    given: dict[str, Any] = {}
    for name in (f.name for f in fields(kind) if key_of(f.name) in values):
        key = key_of(name)
        value = values[key]
        if get_origin(hints[name]) is not None:
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {key} must be an object, not {value!r}")
            given[name] = value
        else:
            converted = convert(value, hints[name], f"{file}: {key}")
            given[name] = file.parent / converted if isinstance(converted, Path) else converted
    return kind(**given)
