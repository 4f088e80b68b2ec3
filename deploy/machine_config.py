"""`server.json` and `node.json`: what one machine of a federation runs.

One of the two lies in the machine's home folder; relative paths in it start there. `fedsim deploy up` and `render` write it,
the agent, the control commands and the doctor read it.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

from annotated_types import Interval

from fedsim.config import Scalar, build, key_of
from fedsim.errors import ConfigError

SERVER, NODE = "server.json", "node.json"
NODE_PORT = 9094  # of the first node on a machine
Port = Annotated[int, Interval(ge=1, le=65535)]


@dataclass(frozen=True)
class ServerConfig:
    name: str  # of the federation
    host: str  # the address that nodes know the server by
    fleet_port: Port
    control_port: Port
    ca: Path  # certificate of the federation's CA
    certificate: Path
    key: Path
    versions: Mapping[str, str] = field(hash=False)  # of the packages that must be the same on every machine
    bind: str = ""  # address to listen on for nodes; empty: all
    operators: Path = Path("operators.json")  # who may use the SuperLink


@dataclass(frozen=True)
class NodeConfig:
    name: str
    superlink: str  # HOST:PORT of the SuperLink's Fleet API
    ca: Path
    key: Path  # the node's own private key
    port: Port  # of the SuperNode, on loopback, for its executor
    config: Mapping[str, Scalar] = field(hash=False)  # Flower's node config: partition-id, data, device, state-dir, ...
    versions: Mapping[str, str] = field(hash=False)
    gpu: str = ""  # CUDA_VISIBLE_DEVICES; empty: all GPUs


T = TypeVar("T", ServerConfig, NodeConfig)
V = TypeVar("V")


def to_json(config: ServerConfig | NodeConfig) -> str:
    """The content of the file, as `read` takes it."""
    values = {key_of(f.name): getattr(config, f.name) for f in fields(config)}
    return json.dumps({k: str(v) if isinstance(v, PurePath) else v for k, v in values.items()}, indent=1) + "\n"


def read(home: Path) -> ServerConfig | NodeConfig:
    """The configuration in a home folder, with paths below `home`; raises ConfigError that names the file and the key."""
    found = [name for name in (NODE, SERVER) if (home / name).is_file()]
    if len(found) != 1:
        raise ConfigError(f"{home} holds {'both' if found else 'neither'} of {NODE} and {SERVER}; one is expected")
    return read_node(home) if found == [NODE] else read_server(home)


def read_server(home: Path) -> ServerConfig:
    return _read(ServerConfig, home / SERVER)


def read_node(home: Path) -> NodeConfig:
    return _read(NodeConfig, home / NODE)


def _read(kind: type[T], file: Path) -> T:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold one JSON object")
    try:
        return _build(kind, values, file.parent)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def _build(kind: type[T], values: dict[str, Any], home: Path) -> T:
    if missing := [key_of(f.name) for f in fields(kind) if f.default is MISSING and key_of(f.name) not in values]:
        raise ConfigError(f"missing keys: {', '.join(missing)}")
    extra: dict[str, Any] = {}  # what `build` does not convert: paths, which start in the home folder, and mappings
    for name, hint in get_type_hints(kind).items():
        if hint is Path and key_of(name) not in values:
            extra[name] = home / str(getattr(kind, name))
        elif hint is Path:
            extra[name] = home / _expect(str, "a path", key_of(name), values)
        elif get_origin(hint) is not None:
            extra[name] = _expect(dict, "an object", key_of(name), values)
    return build(kind, values, extra=extra)


def _expect(kind: type[V], description: str, key: str, values: dict[str, Any]) -> V:
    """Takes a value of this type out of `values`."""
    value = values.pop(key)
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be {description}, not {value!r}")
    return value
