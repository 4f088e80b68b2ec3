"""One typed configuration. TOML files, `--set k=v` and Flower's run config all end here; an unknown key is an error.

Keys are flat and written with dashes. Besides the fields of `RunConfig` there are sections, written with a dotted
prefix: `partition.classes`, `stragglers.count`, `pace.k`, and one per algorithm: `fedavg-ft.epochs`.
"""

import dataclasses
import shlex
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedsim import registry
from fedsim.errors import ConfigError, unknown

Scalar = bool | int | float | str
T = TypeVar("T")

SECTIONS = (
    "partition",
    "stragglers",
    "pace",
)  # sections named by their kind; every other section is an algorithm's name
EXTRA_KEY = "set"  # the run-config key that carries any further "k=v" pairs through `flwr run`


@dataclass(frozen=True)
class NoParams:
    """For everything that has no parameters of its own."""


@dataclass(frozen=True)
class RunConfig:
    """What one run is. Every field has a default, so `fedsim run` alone is a complete run."""

    algorithm: str = "fedavg"
    dataset: str = "digits"
    partition: str = "iid"
    inputs: str = "normalised"  # normalised | raw: pixels as stored, 0 to 255
    model: str = "mlp"
    clients: int = 10
    rounds: int = 20
    seed: int = 0
    participation: float = 1.0  # share of the clients in each round, (0, 1]
    local_epochs: int = 1  # 0: do not train at all
    local_steps: int = 0  # mini-batch steps per job; 0: count in epochs
    batch_size: int = 32
    batches: str = "shuffled"  # shuffled | in-order: as the split deals them, on from where the last job stopped
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    eval_every: int = 1  # evaluate every so many rounds, and always at the end
    validation: float = 0.0  # share of the training data that is held back and tested on instead of the tests
    pace: str = "auto"  # auto: the pace the algorithm was made for
    stragglers: str = "none"
    clock: str = "virtual"  # virtual: simulated seconds, never sleeps; wall: real seconds
    device: str = "auto"  # auto | cpu | cuda | cuda:N
    data_root: str = ""  # where NAME.npz lies; empty: $FEDSIM_DATA, else ~/.cache/fedsim/data
    workers: int = 0  # Ray workers; 0: one per core, or per GPU share
    worker_gpus: float = 0.0  # share of a GPU each Ray worker asks for
    threads: int = 1  # torch threads per worker; fixed, so that results do not depend on the number of workers
    checkpoint_every: int = 10  # rounds between checkpoints; 0: only at the end
    timeout: float = 3600.0  # seconds to wait for a client, and for the roll call
    out: str = ""  # the run folder; empty: a new one below runs/
    resume: bool = False  # go on from the last checkpoint in `out`
    sections: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("clients", "rounds", "batch_size", "threads", "eval_every"):
            at_least(name, getattr(self, name), 1)
        for name in (
            "seed",
            "local_epochs",
            "local_steps",
            "momentum",
            "weight_decay",
            "workers",
            "worker_gpus",
            "checkpoint_every",
        ):
            at_least(name, getattr(self, name), 0)
        for name in ("lr", "timeout"):
            positive(name, getattr(self, name))
        if not 0 < self.participation <= 1:
            raise ConfigError(f"participation must be above 0 and at most 1, not {self.participation}")
        if not 0 <= self.validation < 1:
            raise ConfigError(f"validation must be at least 0 and below 1, not {self.validation}")
        one_of("inputs", self.inputs, ("normalised", "raw"))
        one_of("batches", self.batches, ("shuffled", "in-order"))
        one_of("clock", self.clock, ("virtual", "wall"))
        kind, _, number = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
            raise ConfigError(f"unknown device {self.device!r}. Choices: auto, cpu, cuda, cuda:N")
        registry.check("model", self.model)
        if self.pace != "auto" and self.pace not in registry.providers("pace"):
            unknown("pace", self.pace, ["auto", *registry.names("pace")])
        for section in {*SECTIONS, *self.sections, self.algorithm}:
            self.params(section)

    def params(self, section: str) -> Any:
        """The validated parameters of a section: of the chosen partition, straggler model, pace, or of an algorithm."""
        values = self.sections.get(section, {})
        if section not in SECTIONS:
            return build(registry.find("algorithm", section).params, values, section)
        return build(self.part(section).params, values, section)

    def part(self, section: str) -> Any:
        """The chosen partition, straggler model or pace; `auto` is the pace the algorithm was made for."""
        chosen = getattr(self, section)
        if section == "pace" and chosen == "auto":
            chosen = registry.find("algorithm", self.algorithm).pace
        return registry.find(section, chosen)

    def flat(self) -> dict[str, Scalar]:
        """The same configuration as one flat mapping, ready for TOML, JSON or Flower's run config."""
        plain = {key_of(f.name): getattr(self, f.name) for f in fields(self) if f.name != "sections"}
        dotted = {f"{s}.{k}": v for s, values in self.sections.items() for k, v in values.items()}
        return {**plain, **dotted}

    def replace(self, **changes: Any) -> "RunConfig":
        return dataclasses.replace(self, **changes)


def key_of(name: str) -> str:
    return name.replace("_", "-")


def at_least(name: str, value: float, lowest: float) -> None:
    if not value >= lowest:
        raise ConfigError(f"{key_of(name)} must be at least {lowest}, not {value}")


def positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"{key_of(name)} must be above 0, not {value}")


def one_of(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        unknown(key_of(name), value, choices)


def parse(values: Mapping[str, Scalar]) -> RunConfig:
    """A flat mapping (keys with dashes, sections with dots) -> RunConfig."""
    plain: dict[str, Scalar] = {}
    sections: dict[str, dict[str, Scalar]] = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        if not dot:
            plain[key] = value
        elif section in SECTIONS or section in registry.providers("algorithm"):
            sections.setdefault(section, {})[name] = value
        else:
            unknown("section", section, [*SECTIONS, *registry.names("algorithm")])
    return build(RunConfig, plain, extra={"sections": sections})


def from_run_config(run_config: Mapping[str, Scalar]) -> RunConfig:
    """Flower's run config, whose key `set` may carry any further pairs: set = "partition.classes=2 lr=0.1"."""
    values = dict(run_config)
    extra = str(values.pop(EXTRA_KEY, ""))
    return _parse_once(tuple(sorted({**values, **assignments(shlex.split(extra))}.items())))


@cache
def _parse_once(items: tuple[tuple[str, Scalar], ...]) -> RunConfig:
    """Clients parse the same run config for every message; once is enough."""
    return parse(dict(items))


def read(path: Path | None, overrides: Iterable[str] = (), defaults: Mapping[str, Scalar] | None = None) -> RunConfig:
    """A TOML file (optional) and `k=v` overrides -> RunConfig; `defaults` are for keys that neither sets."""
    return parse({**(defaults or {}), **(_read_toml(path) if path else {}), **assignments(overrides)})


def assignments(pairs: Iterable[str]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"expected key=value, not {pair!r}")
        values[key.strip()] = value.strip()
    return values


def _read_toml(path: Path) -> dict[str, Scalar]:
    try:
        return flatten(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read config file {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Tables become dotted keys; a list becomes a comma-separated value."""
    flat: dict[str, Scalar] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = ",".join(map(str, value)) if isinstance(value, list) else value
    return flat


def build(kind: type[T], values: Mapping[str, Scalar], where: str = "", extra: Mapping[str, Any] | None = None) -> T:
    """A frozen dataclass from a mapping: keys checked, text converted to each field's type."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} must be a dataclass")
    hints = get_type_hints(kind)
    known = {key_of(f.name): f.name for f in fields(kind) if f.init and f.name not in (extra or {})}
    prefix = f"{where}." if where else ""
    given: dict[str, Any] = dict(extra or {})
    for key, value in values.items():
        name = known.get(key_of(key))
        if name is None:
            unknown("config key", prefix + key, (prefix + k for k in known))
        given[name] = convert(value, hints[name], prefix + key)
    return kind(**given)


def convert(value: Scalar, kind: Any, key: str) -> Any:
    """`value` as the type a field declares: bool, int, float, str, a Literal, an optional, or a tuple of these."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in args:
            unknown(f"value of {key}", str(value), map(str, args))
        return value
    if origin in (Union, types.UnionType):
        inner = next(a for a in args if a is not type(None))
        return None if value in ("none", "") else convert(value, inner, key)
    if origin is tuple:
        return tuple(convert(item.strip(), args[0], key) for item in str(value).split(",") if item.strip())
    try:
        if kind is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if kind is int:
            number = float(value)
            if number != int(number):
                raise ValueError
            return int(number)
        return kind(value)
    except (ValueError, KeyError, OverflowError):
        raise ConfigError(f"{key} must be of type {kind.__name__}, not {value!r}") from None
