"""One typed configuration. TOML files, `--set k=v` and Flower's run config all end here; an unknown key is an error.

Keys are flat and written with dashes. Besides the fields of `RunConfig` there are sections, written with a dotted
prefix: `partition.classes`, `stragglers.count`, `pace.k`, and one per algorithm: `fedavg-ft.epochs`. The section
`model` names the models of single clients (`model.3`), and the checkpoint that they start from (`model.pretrained`).
"""

import dataclasses
import json
import shlex
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from math import cos, pi
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Interval, Le, Lt

from fedsim import registry
from fedsim.errors import ConfigError, unknown
from fedsim.schedule import Schedule

Scalar = bool | int | float | str
T = TypeVar("T")

# What a parameter may be, declared in its type: `mu: NonNegativeFloat = 0.01`, `mode: Literal["a", "b"] = "a"`.
PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Port = Annotated[int, Interval(ge=0, le=65535)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Interval(ge=0, le=1)]  # 0 and 1 included
PositiveFraction = Annotated[float, Interval(gt=0, le=1)]
FractionBelowOne = Annotated[float, Interval(ge=0, lt=1)]

# Sections named by their kind, and two of no kind; every other section is the name of an algorithm or of a filter.
SECTIONS = ("partition", "stragglers", "pace", "aggregator", "server-optimizer", "finetune", "attack")
AUTO = "auto"  # of `pace`, `server-optimizer` and `finetune`: what the algorithm was made for
# The models of single clients, by their ids, and their start; what the public data is; how data is read.
MODEL, PUBLIC, DATA = "model", "public", "data"
LOG = "log"  # where the trackers log
PRETRAINED = "pretrained"
PARTITION, UNSEEN = "partition", "unseen"  # a parameter of every partition: the share of the clients that do not train
FIXED = (*SECTIONS, MODEL, PUBLIC, DATA, LOG)
EXTRA_KEY = "set"  # the run-config key that carries any further "k=v" pairs through `flwr run`


@dataclass(frozen=True)
class NoParams:
    """For everything that has no parameters of its own."""


@dataclass(frozen=True)
class FineTuning:
    """How clients fine-tune the copy of the global model that they use; `finetune` is the length."""

    length: int | None = 0  # how long, in units; none: as long as local training; 0: no fine-tuning
    unit: Literal["epochs", "steps"] = "epochs"  # of the length
    part: Literal["all", "head", "base"] = "all"  # what is tuned
    lr: NonNegativeFloat = 0.0  # 0: that of local training


@dataclass(frozen=True)
class PartitionParams:
    """Parameters of every partition, besides its own."""

    unseen: FractionBelowOne = 0.0  # share of the clients that do not train and only receive the model at the end


@dataclass(frozen=True)
class PublicParams:
    """Parameters of the public data."""

    dataset: str = ""  # whose training samples it is; empty: the run's dataset, which is split without them


@dataclass(frozen=True)
class DataParams:
    """How tables (CSV, Parquet, the Hugging Face hub), texts and images are read. Columns are named by their headings."""

    label: str = "label"  # the column of the targets
    user: str = ""  # the column of the users that samples belong to; empty: they are not told
    features: tuple[str, ...] = ()  # the columns of the samples; empty: all others
    categories: tuple[str, ...] = ()  # of these, columns whose values are categories: one input for each value
    classes: tuple[str, ...] = ()  # the labels in the order of their numbers; empty: all that occur, sorted
    objective: Literal["classification", "regression"] = "classification"  # what models are trained for
    test: str = ""  # where the tests are: another table, or a split of the hub's dataset; empty: see docs/data.md
    subset: str = ""  # the configuration of the hub's dataset
    tokenizer: Literal["words", "characters"] = "words"  # what a token of a text is
    length: PositiveInt = 200  # tokens of a text: longer ones are cut, shorter ones padded
    vocabulary: Annotated[int, Ge(3)] = 20_000  # different token ids at most
    tokens: str = ""  # a file with a token in every line: the vocabulary; empty: that of the training texts
    size: NonNegativeInt = 0  # images are scaled to so many pixels a side; 0: as they are


@dataclass(frozen=True)
class LogParams:
    """Parameters of the trackers; their libraries' own environment variables say the rest."""

    project: str = ""  # MLflow's experiment, W&B's project; empty: fedsim
    group: str = ""  # what runs belong together; empty: the sweep of the run
    uri: str = ""  # MLflow's tracking server; empty: $MLFLOW_TRACKING_URI, else MLflow's own default


@dataclass(frozen=True)
class RunConfig:
    """What one run is. Every field has a default, so `fedsim run` alone is a complete run."""

    algorithm: str = "fedavg"  # how models are trained and combined
    dataset: str = "digits"  # a name, a file or folder by its path, hf:OWNER/NAME, or A+B
    partition: str = "iid"  # how the dataset is split over the clients
    inputs: Literal["normalized", "raw"] = "normalized"  # images normalized per channel, or pixels as stored, 0 to 255
    model: str = "mlp"  # a name or module:class; several, separated by commas, go round the clients
    clients: PositiveInt = 10  # number of clients
    rounds: PositiveInt = 20  # number of server steps
    seed: NonNegativeInt = 0  # of every random draw of the run
    participation: PositiveFraction = 1.0  # share of the clients that get a job in each round
    local_epochs: NonNegativeInt = 1  # epochs of local training per job; 0: no training
    local_steps: NonNegativeInt = 0  # mini-batch steps per job instead of epochs; 0: count in epochs
    batch_size: NonNegativeInt = 32  # samples in a mini-batch; 0: all samples of a client
    batches: Literal["shuffled", "in-order"] = (
        "shuffled"  # order of the samples; in-order: as the split deals them, on from where the last job stopped
    )
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # of the clients; new for every job
    lr: PositiveFloat = 0.05  # learning rate of the clients
    lr_schedule: str = "constant"  # constant | cosine | FACTOR:ROUNDS, lr times FACTOR after every so many rounds
    momentum: NonNegativeFloat = 0.0  # of the clients' optimizer
    weight_decay: NonNegativeFloat = 0.0  # of the clients' optimizer
    eval_every: PositiveInt = 1  # evaluate every so many rounds, and always at the end
    eval_training: bool = False  # also measure the metrics on the clients' training data: training-loss, ...
    target: NonNegativeFloat = 0.0  # stop once the main metric of the global model has reached this value; 0: never
    validation: FractionBelowOne = (
        0.0  # share of the training data that is held back and tested on instead of the tests
    )
    public: NonNegativeInt = 0  # samples that belong to no client and that everyone has
    pace: str = AUTO  # when the server sends jobs and aggregates; auto: as the algorithm was made for
    stragglers: str = "none"  # how long jobs take, and which clients drop out
    aggregator: str = "mean"  # how algorithms that average combine their clients' vectors
    server_optimizer: str = AUTO  # what makes a step of that mean; auto: sgd, or the one of the algorithm
    finetune: str = AUTO  # auto | local | N: epochs for which clients tune the global model that they use; 0: none
    attack: str = "none"  # what malicious clients do
    filters: str = ""  # what treats uplinks on clients and server: names, separated by commas
    clock: Literal["virtual", "wall"] = "virtual"  # virtual: simulated seconds, never sleeps; wall: real seconds
    device: str = "auto"  # where clients train: auto | cpu | cuda | cuda:N
    data_root: str = ""  # where NAME.npz lies; empty: $FEDSIM_DATA, else ~/.cache/fedsim/data
    workers: NonNegativeInt = 0  # clients at work at a time; 0: on Ray one per core or GPU share, inline one
    worker_gpus: NonNegativeFloat = 0.0  # share of a GPU each Ray worker asks for
    vectorize: str = "auto"  # auto | off | N: so many small clients are trained at once, where it pays
    threads: PositiveInt = 1  # torch threads per worker; fixed, so that results do not depend on the number of workers
    precision: Literal["float32", "bf16"] = "float32"  # of the products in training and tests; weights stay float32
    compile: bool = False  # compile the network with torch.compile
    server_memory: NonNegativeInt = (
        0  # MB for the server's tables with a row per client, larger ones are files; 0: half of what is available
    )
    checkpoint_every: NonNegativeInt = 10  # rounds between checkpoints; 0: only at the end
    timeout: PositiveFloat = (
        3600.0  # seconds for a client's job (on Flower's grids from sending), and for the roll call
    )
    refusals: NonNegativeInt = 5  # a client whose answers are refused so often in a row gets no more jobs; 0: it does
    nodes: str = ""  # names that the keys of the nodes of clients 0, 1, ... are registered under, separated by commas
    metrics: Port = 0  # serve Prometheus metrics of the run on this port of loopback; 0: none
    log: str = ""  # trackers that follow the run, separated by commas: csv, mlflow, tensorboard, wandb, or your own
    log_format: Literal["text", "json"] = "text"  # text, or one JSON object per message, with run and client
    out: str = ""  # the run folder; empty: a new one below runs/
    resume: bool = False  # go on from the last checkpoint in `out`
    any_version: bool = False  # resume also a run that another version of fedsim began
    sections: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict, hash=False)

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self) if field.hash is not False))

    def __hash__(self) -> int:
        """Made once: every job looks things up by its configuration."""
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """Without the hash: those of texts differ between processes."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    def __post_init__(self) -> None:
        check(self)
        kind, _, number = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda") or (number and not (kind == "cuda" and number.isdigit())):
            raise ConfigError(f"unknown device {self.device!r}. Choices: auto, cpu, cuda, cuda:N")
        for kind in ("aggregator", "attack"):
            registry.check(kind, getattr(self, kind))
        self._check_models()
        for kind, names in (("filter", self.filter_names), ("tracker", self.log_names)):
            for name in names:
                registry.check(kind, name)
        lr_at(self, 0)
        if (named := _listed(self.nodes)) and (len(named) != self.clients or len(set(named)) < len(named)):
            raise ConfigError(f"nodes lists {len(set(named))} different names, and the run has clients={self.clients}")
        if not self.public and self.params(PUBLIC).dataset:
            raise ConfigError(f"{PUBLIC}.dataset needs {PUBLIC}=N, the number of its samples")
        if self.vectorize not in ("auto", "off") and not (self.vectorize.isdigit() and int(self.vectorize) > 1):
            unknown("vectorize", self.vectorize, ("auto", "off", "a number above 1"))
        for kind in ("pace", "server-optimizer"):
            if (chosen := self._chosen(kind)) != AUTO and chosen not in registry.providers(kind):
                unknown(kind, chosen, [AUTO, *registry.names(kind)])
        if self.finetune not in (AUTO, "local") and not self.finetune.isdecimal():
            unknown("finetune", self.finetune, (AUTO, "local", "a number of epochs"))
        for section in {*SECTIONS, *self.sections, self.algorithm} - {MODEL}:
            self.params(section)
        _ = self.unseen  # checked

    def params(self, section: str) -> Any:
        """The validated parameters of a section: of the chosen partition, straggler model, pace, or of an algorithm.

        Those of `finetune` are a `FineTuning`: the run's settings in place of the algorithm's own.
        """
        values = self.sections.get(section, {})
        if section == PARTITION:
            values = {key: value for key, value in values.items() if key != UNSEEN}
        if section == "finetune":
            return self._fine_tuning(values)
        if section == PUBLIC:
            return build(PublicParams, values, section)
        if section in (DATA, LOG):
            return build(DataParams if section == DATA else LogParams, values, section)
        if section in SECTIONS:
            owner = self.part(section)
        else:
            owner = registry.find("filter" if section in registry.providers("filter") else "algorithm", section)
        return build(owner.params, values, section, further=[UNSEEN] if section == PARTITION else [])

    @cached_property
    def unseen(self) -> tuple[int, ...]:
        """The clients that are kept out of training and only receive the model at the end, in order."""
        share = build(PartitionParams, self._own(PARTITION, UNSEEN), PARTITION).unseen
        if not share:
            return ()
        from fedsim.rng import stream  # numpy, which the command line does without

        count = max(1, round(share * self.clients))
        if count >= self.clients:
            raise ConfigError(f"{PARTITION}.{UNSEEN}={share:g} leaves none of clients={self.clients} to train")
        return tuple(sorted(stream(self.seed, UNSEEN).permutation(self.clients)[:count].tolist()))

    @property
    def cohort(self) -> int:
        """How many clients get a job in each round."""
        return max(1, round(self.participation * (self.clients - len(self.unseen))))

    def _own(self, section: str, key: str) -> dict[str, Scalar]:
        values = self.sections.get(section, {})
        return {key: values[key]} if key in values else {}

    @property
    def filter_names(self) -> list[str]:
        return _listed(self.filters)

    @property
    def log_names(self) -> list[str]:
        """The trackers that follow the run, each once."""
        return list(dict.fromkeys(_listed(self.log)))

    def node_of(self, client: int) -> str:
        """The registered name of the node that may be this client; empty: any node may."""
        names = _listed(self.nodes)
        return names[client] if names else ""

    def model_of(self, client: int) -> str:
        """The name of a client's model: its own (`model.3=cnn`), or that at its place of `model`."""
        names, own = _listed(self.model), self.sections.get(MODEL, {})
        return str(own.get(str(client), names[client % len(names)]))

    @property
    def models(self) -> list[str]:
        """The different models of the run's clients, as far as its configuration tells; nodes may name their own."""
        return list(dict.fromkeys(map(self.model_of, range(self.clients))))

    @property
    def pretrained(self) -> str:
        """The checkpoint that the model starts from, a path; empty: none."""
        return str(self.sections.get(MODEL, {}).get(PRETRAINED, ""))

    def with_model(self, name: str) -> "RunConfig":
        """The same run for a client with this model."""
        sections = {section: values for section, values in self.sections.items() if section != MODEL}
        if self.pretrained:
            sections[MODEL] = {PRETRAINED: self.pretrained}
        return self if (self.model, self.sections) == (name, sections) else self.replace(model=name, sections=sections)

    def _check_models(self) -> None:
        own = {key: value for key, value in self.sections.get(MODEL, {}).items() if key != PRETRAINED}
        for key in own:
            if not (key.isdecimal() and str(int(key)) == key and int(key) < self.clients):
                known = f"the run has clients 0 to {self.clients - 1}, and {MODEL}.{PRETRAINED} is their start"
                raise ConfigError(f"{MODEL}.{key} names no client: {known}")
        for name in (*(_listed(self.model) or [self.model]), *map(str, own.values())):
            registry.check("model", name)
        if self.pretrained and len(self.models) > 1:
            raise ConfigError(
                f"{MODEL}.{PRETRAINED} is the start of one model, but the clients have {', '.join(self.models)}"
            )

    def part(self, section: str) -> Any:
        """What a section's key chose: a partition, a pace, an aggregator, ...; `auto`: what the algorithm was made for."""
        chosen = self._chosen(section)
        if chosen == AUTO:
            chosen = getattr(registry.find("algorithm", self.algorithm), section.replace("-", "_"))
        return registry.find(section, chosen)

    def _fine_tuning(self, values: Mapping[str, Scalar]) -> FineTuning:
        own = dataclasses.asdict(registry.find("algorithm", self.algorithm).finetune(self.params(self.algorithm)))
        length = own.pop("length")
        if self.finetune != AUTO:
            length = None if self.finetune == "local" else int(self.finetune)
        return build(FineTuning, {**own, **values}, "finetune", extra={"length": length})

    def _chosen(self, section: str) -> str:
        return str(getattr(self, section.replace("-", "_")))

    def flat(self) -> dict[str, Scalar]:
        """The same configuration as one flat mapping, ready for TOML, JSON or Flower's run config."""
        plain = {key_of(f.name): getattr(self, f.name) for f in fields(self) if f.name != "sections"}
        dotted = {f"{s}.{k}": v for s, values in self.sections.items() for k, v in values.items()}
        return {**plain, **dotted}

    def replace(self, **changes: Any) -> "RunConfig":
        return dataclasses.replace(self, **changes)


def lr_at(config: RunConfig, step: int) -> float:
    """The learning rate of jobs that start from server step `step`; raises ConfigError for an unknown schedule."""
    if config.lr_schedule == "constant":
        return config.lr
    if config.lr_schedule == "cosine":
        return config.lr * (1 + cos(pi * min(step, config.rounds - 1) / config.rounds)) / 2
    factor, _, every = config.lr_schedule.partition(":")
    try:
        schedule = Schedule(config.lr, float(factor), int(every))
    except ValueError:
        schedule = Schedule(config.lr, 0, 0)
    if not (schedule.factor > 0 and schedule.every > 0):
        unknown("lr-schedule", config.lr_schedule, ("constant", "cosine", "FACTOR:ROUNDS, such as 0.5:10"))
    return schedule.at(step)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def key_of(name: str) -> str:
    return name.replace("_", "-")


def check(values: Any, where: str = "") -> None:
    """Compares every field of a dataclass with what its type declares; raises ConfigError with the key and the valid range.

    `where` is the section the keys belong to: "fedprox" for `fedprox.mu`. Of a tuple every item is compared.
    """
    prefix = f"{where}." if where else ""
    for name, hint in _hints(values.__class__).items():
        value = getattr(values, name)
        several = get_origin(hint) is tuple
        for item in value if several else (value,):
            _check_one(prefix + key_of(name), item, get_args(hint)[0] if several else hint)


def _check_one(key: str, value: Any, hint: Any) -> None:
    if get_origin(hint) in (Union, types.UnionType):
        if value is not None:
            _check_one(key, value, next(arg for arg in get_args(hint) if arg is not type(None)))
        return
    if not all(_within(value, bound) for bound in _bounds(hint)):
        raise ConfigError(f"{key} must be {constraint(hint)}, not {value}")
    if get_origin(hint) is Literal and value not in get_args(hint):
        unknown(key, str(value), map(str, get_args(hint)))


def constraint(hint: Any) -> str:
    """What a parameter's type allows: "above 0 and at most 1", "softmax | identity"; empty if it allows everything."""
    if hint is bool:
        return "true | false"
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(constraint(arg) for arg in get_args(hint) if arg is not type(None))
        return f"{inner}, or none" if inner else ""
    return " and ".join(_told(bound) for bound in _bounds(hint))


@cache
def _hints(kind: type, extras: bool = True) -> Mapping[str, Any]:
    """The types of a dataclass's fields, with or without ranges; sweeps ask for them thousands of times."""
    return get_type_hints(kind, include_extras=extras)


@cache
def _bounds(hint: Any) -> list[Any]:
    metadata = getattr(hint, "__metadata__", ())
    return [bound for entry in metadata for bound in (entry if isinstance(entry, GroupedMetadata) else [entry])]


def _within(value: Any, bound: Any) -> bool:
    """False for NaN, whatever the bound is."""
    match bound:
        case Gt(gt):
            return bool(value > gt)
        case Ge(ge):
            return bool(value >= ge)
        case Lt(lt):
            return bool(value < lt)
        case Le(le):
            return bool(value <= le)
    raise TypeError(f"{bound} is not supported in the type of a parameter: use Gt, Ge, Lt, Le, Interval or Literal")


def _told(bound: Any) -> str:
    match bound:
        case Gt(gt):
            return f"above {gt}"
        case Ge(ge):
            return f"at least {ge}"
        case Lt(lt):
            return f"below {lt}"
        case _:
            return f"at most {bound.le}"


def parse(values: Mapping[str, Scalar]) -> RunConfig:
    """A flat mapping (keys with dashes, sections with dots) -> RunConfig."""
    plain: dict[str, Scalar] = {}
    sections: dict[str, dict[str, Scalar]] = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        if not dot:
            plain[key] = value
        elif section in FIXED or any(section in registry.providers(kind) for kind in ("algorithm", "filter")):
            sections.setdefault(section, {})[name] = value
        else:
            unknown("section", section, [*FIXED, *registry.names("algorithm"), *registry.names("filter")])
    return build(RunConfig, plain, extra={"sections": sections})


def from_run_config(run_config: Mapping[str, Scalar]) -> RunConfig:
    """Flower's run config as a RunConfig."""
    return _parse_once(tuple(sorted(flat_run_config(run_config).items())))


def flat_run_config(run_config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The keys of Flower's run config. Its key `set` may carry any further ones, as pairs or as a JSON object:
    set = "partition.classes=2 lr=0.1", set = '{"partition.classes": 2, "lr": 0.1}'."""
    values = dict(run_config)
    extra = str(values.pop(EXTRA_KEY, ""))
    return {**values, **(_read_json(extra) if extra.startswith("{") else assignments(_split(extra)))}


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{EXTRA_KEY} is not a list of k=v pairs, {str(error).lower()}: {text!r}") from error


def _read_json(text: str) -> dict[str, Scalar]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{EXTRA_KEY} is not a valid JSON object: {error}") from error
    if wrong := [key for key, value in found.items() if not isinstance(value, Scalar)]:
        raise ConfigError(f"{wrong[0]} in {EXTRA_KEY} must be a text, a number or a boolean, not {found[wrong[0]]!r}")
    return dict(found)


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


def build(
    kind: type[T],
    values: Mapping[str, Scalar],
    where: str = "",
    extra: Mapping[str, Any] | None = None,
    further: Iterable[str] = (),
) -> T:
    """A frozen dataclass from a mapping: keys checked, text converted to each field's type. `further`: keys that are valid
    as well, and set elsewhere."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} must be a dataclass")
    hints = _hints(kind, extras=False)
    known = {key_of(f.name): f.name for f in fields(kind) if f.init and f.name not in (extra or {})}
    prefix = f"{where}." if where else ""
    given: dict[str, Any] = dict(extra or {})
    for key, value in values.items():
        name = known.get(key_of(key))
        choices = [*known, *further]
        if name is None and not choices:
            raise ConfigError(f"unknown config key {prefix + key!r}: the chosen {where} has no parameters")
        if name is None:
            unknown("config key", prefix + key, (prefix + k for k in choices))
        given[name] = convert(value, hints[name], prefix + key)
    made = kind(**given)
    check(made, where)
    return made


def convert(value: Scalar, kind: Any, key: str) -> Any:
    """`value` as the type a field declares: bool, int, float, str, a Literal, an optional, or a tuple of these."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        named = {str(choice): choice for choice in args}
        return named[str(value)] if str(value) in named else unknown(key, str(value), named)
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
