"""Names -> algorithms, partitions, datasets, models, paces, straggler models, aggregators, server optimizers, attacks,
filters, objectives, trackers.

The built-in tables live next to what they list (`strategies.ALGORITHMS`, ...) as `name: "module:attribute"`, so a name
costs no import until it is used. A third party adds names through the entry point group of the kind, for example

    [project.entry-points."fedsim.algorithms"]
    my-method = "my_package:MY_METHOD"

A name that two providers claim is an error: a run must never depend on which of them was installed first. A model may
also be named by where it is, "module:class", without any registration.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fedsim.errors import ConfigError, unknown


@dataclass(frozen=True)
class Kind:
    plural: str
    table: str  # "module:attribute" of the built-in table

    @property
    def group(self) -> str:
        return f"fedsim.{self.plural}"


KINDS: Mapping[str, Kind] = {
    "algorithm": Kind("algorithms", "fedsim.strategies:ALGORITHMS"),
    "partition": Kind("partitions", "fedsim.partitions:PARTITIONS"),
    "dataset": Kind("datasets", "fedsim.partitions:DATASETS"),
    "model": Kind("models", "fedsim.clients:MODELS"),
    "pace": Kind("paces", "fedsim.server.pace:PACES"),
    "stragglers": Kind("stragglers", "fedsim.server.stragglers:STRAGGLERS"),
    "aggregator": Kind("aggregators", "fedsim.aggregators:AGGREGATORS"),
    "server-optimizer": Kind("server-optimizers", "fedsim.server_optimizers:SERVER_OPTIMIZERS"),
    "attack": Kind("attacks", "fedsim.attacks:ATTACKS"),
    "filter": Kind("filters", "fedsim.filters:FILTERS"),
    "objective": Kind("objectives", "fedsim.clients:OBJECTIVES"),
    "tracker": Kind("trackers", "fedsim.trackers:TRACKERS"),
}


_objects: dict[tuple[str, str], Any] = {}  # (kind, name) -> what the Python API was given instead of a name


def load(target: Any) -> Any:
    """The object that "module:attribute" names; anything but a text is the object itself."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@cache
def providers(kind: str) -> dict[str, str]:
    """Every known name of a kind, with the "module:attribute" that provides it."""
    found: dict[str, str] = dict(load(KINDS[kind].table))
    for point in entry_points(group=KINDS[kind].group):
        if point.name in found and found[point.name] != point.value:
            raise ConfigError(
                f"{kind} {point.name!r} is registered twice, by {found[point.name]} and by {point.value}: "
                "rename or uninstall one of them"
            )
        found[point.name] = point.value
    return found


def add(kind: str, name: str, thing: Any) -> None:
    """Makes an object known under a name in this process, in the place of one that was added before. Raises ConfigError
    if the name belongs to something else."""
    known = providers(kind)
    if name in known and (kind, name) not in _objects:
        raise ConfigError(f"{kind} {name!r} is the name of {known[name]}: choose another name")
    _objects[kind, name] = thing
    known[name] = f"{thing.__module__}:{getattr(thing, '__qualname__', name)}"
    find.cache_clear()


def added() -> dict[tuple[str, str], Any]:
    """Everything that was added as an object: what another process must add before it knows the same names."""
    return dict(_objects)


def names(kind: str) -> list[str]:
    return sorted(providers(kind))


def is_place(kind: str, name: str) -> bool:
    """Whether a name says itself where its object is: "module:class", which models may."""
    return kind == "model" and ":" in name


def check(kind: str, name: str) -> None:
    """An unknown name is refused with the choices; a known one is not loaded, and a place is not looked up."""
    if is_place(kind, name):
        if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
            raise ConfigError(f"{kind} {name!r} is no place of a class: write module:class, such as my_module:MyNet")
    elif name not in providers(kind):
        unknown(kind, name, providers(kind))


@cache
def find(kind: str, name: str) -> Any:
    """The object registered under `name`."""
    check(kind, name)
    if is_place(kind, name):
        return _at_place(kind, name)
    known = providers(kind)
    try:
        found = _objects[kind, name] if (kind, name) in _objects else load(known[name])
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{kind} {name!r} is provided by {known[name]}, which cannot be loaded: {error}") from error
    if kind == "algorithm" and found.name != name:
        raise ConfigError(f"algorithm {name!r} is provided by {known[name]}, which calls itself {found.name!r}")
    return found


def _at_place(kind: str, name: str) -> Any:
    """The object at "module:class". Modules are also looked for in the working folder, last."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = import_module(module)
    except Exception as error:  # whatever the module does when it is imported
        raise ConfigError(
            f"{kind} {name!r}: module {module!r} cannot be imported ({type(error).__name__}: {error}). Install it, or "
            "add its folder to PYTHONPATH, on every machine that trains"
        ) from error
    if not hasattr(found, attribute):
        unknown(f"class in module {module!r}", attribute, (k for k, v in vars(found).items() if isinstance(v, type)))
    return getattr(found, attribute)


def describe(kind: str, name: str) -> str:
    """One line on what a name stands for: the `about` of the object, else the first line of its docstring."""
    thing = find(kind, name)
    text = getattr(thing, "about", None) or (getattr(thing, "__doc__", None) or "")
    return str(text).strip().split("\n")[0]
