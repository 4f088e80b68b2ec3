"""`policy.toml`: what a site allows on its node. It lies in the node's home folder and is enforced there.

    python -m fedsim.deploy.policy          in the node's home folder; prints what it restricts, as JSON

    algorithms = ["fedavg", "fedprox"]      # no other algorithm
    datasets = ["own"]                      # "own": the data that the node brings
    plugins = ["my-fedprox==1.0"]           # installed packages whose plug-ins may run; none unless they are listed
    max-rounds = 100                        # of a run
    max-jobs-per-day = 500                  # training jobs
    max-seconds-per-job = 600               # of a job, which is ended then; never more than the run's timeout
    min-clients = 3                         # of a run
    hours = ["20:00-06:00"]                 # by this machine's clock
    label-counts = false                    # whether the server learns how many samples of each class there are

    [require]                               # settings that a run must have
    filters = { includes = ["clip"] }
    "clip.norm" = { at-most = 1.0 }

    [forbid]                                # settings that it must not have
    attack = ["backdoor", "label-flip"]

Every key is optional. A rule is a value, a list of values, or one of `at-least`, `at-most` and `includes` (of a setting that
lists several names).
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fedsim import registry
from fedsim.config import FIXED, SECTIONS, NonNegativeInt, PositiveFloat, PositiveInt, RunConfig, Scalar, build, key_of
from fedsim.errors import ConfigError, FedsimError, unknown

FILE = "policy.toml"
OWN = "own"  # the dataset of a node that brings its own data
TABLES = ("require", "forbid")
COMPARISONS = ("at-least", "at-most", "includes")
PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # of a class: module:class
HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class Refused(FedsimError):
    """The site does not allow something; the message says what, and what it allows."""


@dataclass(frozen=True)
class Rule:
    """A setting of a run and what the site wants it to be."""

    key: str
    comparison: str  # "is" one of the values, or one of COMPARISONS
    values: tuple[Scalar, ...]

    def __str__(self) -> str:
        listed = " or ".join(map(_text, self.values)) if self.comparison == "is" else ", ".join(map(_text, self.values))
        return f"{self.key} {self.comparison} {listed}"

    def holds(self, value: Any) -> bool:
        if self.comparison == "includes":
            return set(map(str, self.values)) <= {name.strip() for name in str(value).split(",")}
        if self.comparison == "is":
            return any(_text(value) == _text(wanted) for wanted in self.values)
        limit = self.values[0]
        if isinstance(value, bool | str) or isinstance(limit, bool | str):
            return False
        return bool(value >= limit if self.comparison == "at-least" else value <= limit)


@dataclass(frozen=True)
class Policy:
    """The rules of a site. Without a file nothing is restricted but plug-ins, and label counts of own data are not told."""

    algorithms: tuple[str, ...] = ()  # empty: all that are installed
    datasets: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()  # empty: none
    max_rounds: PositiveInt | None = None
    max_jobs_per_day: NonNegativeInt | None = None
    max_seconds_per_job: PositiveFloat | None = None  # None: the timeout of the run
    min_clients: PositiveInt | None = None
    hours: tuple[str, ...] = ()
    label_counts: bool | None = None  # None: those of the run's dataset, not those of own data
    require: tuple[Rule, ...] = ()
    forbid: tuple[Rule, ...] = ()

    def tells_label_counts(self, own_data: bool) -> bool:
        return not own_data if self.label_counts is None else self.label_counts

    def summary(self) -> dict[str, Any]:
        """What is restricted, for people and JSON."""
        found = {key_of(f.name): getattr(self, f.name) for f in fields(self)}
        rules = {name: [str(rule) for rule in found.pop(name)] for name in TABLES}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
        return {key: value for key, value in {**plain, **rules}.items() if value not in (None, [])}


def read(home: Path) -> Policy:
    """The policy in a node's home folder; raises ConfigError that names the file, the key and the choices."""
    path = home / FILE
    try:
        tree = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    try:
        return parse(tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def in_words(summary: Mapping[str, Any]) -> str:
    """A summary as one line."""
    told = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else _text(value) for key, value in summary.items()
    }
    return "; ".join(f"{key}: {value}" for key, value in told.items()) or "no restriction, and no plug-in"


def parse(tree: Mapping[str, Any]) -> Policy:
    """The content of a policy file -> Policy; names are not looked up yet, see `check_names`."""
    known = [key_of(f.name) for f in fields(Policy)]
    if wrong := sorted(set(tree) - set(known)):
        unknown("key", wrong[0], known)
    tables = {name: tuple(_rules(name, tree.get(name, {}))) for name in TABLES}
    plain = {key: _joined(key, value) for key, value in tree.items() if key not in TABLES}
    policy = build(Policy, plain, extra=tables)
    for period in policy.hours:
        if not HOURS.fullmatch(period):
            raise ConfigError(f"hours must be periods such as '20:00-06:00', not {period!r}")
    for plugin in policy.plugins:
        _requirement(plugin)
    return policy


def check_names(policy: Policy) -> None:
    """Raises ConfigError for names and settings that this fedsim does not have: a misspelled rule guards nothing."""
    for name in policy.algorithms:
        registry.check("algorithm", name)
    for name in policy.datasets:
        if name != OWN and name not in registry.providers("dataset"):
            unknown("dataset", name, [OWN, *registry.names("dataset")])
    for rule in (*policy.require, *policy.forbid):
        _check_key(rule.key)


def check_plugins(policy: Policy, settings: Mapping[str, Scalar]) -> None:
    """Raises Refused if a run's settings, as they arrived, name a plug-in of a package that the site has not listed.

    To be called before the settings are parsed, which loads plug-ins.
    """
    allowed = [_requirement(plugin) for plugin in policy.plugins]
    for kind, name in _named(settings):
        for point in entry_points(group=registry.KINDS[kind].group, name=name):
            if not any(_provides(requirement, point) for requirement in allowed):
                package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
                raise Refused(
                    f"{kind} {name!r} is a plug-in of the package {package}, which the site has not listed: "
                    f"add it to plugins in {FILE}"
                )
    for key, place in _places(settings):
        owners = packages_distributions().get(place.partition(":")[0].partition(".")[0], [])
        if not any(_names(requirement, owner, version(owner)) for requirement in allowed for owner in owners):
            raise Refused(
                f"{key}={place} is a class of {' or '.join(owners) or 'no installed package'}, which the site has not "
                f"listed: add the package to plugins in {FILE}"
            )


def check(policy: Policy, config: RunConfig, own_data: bool, now: datetime) -> None:
    """Raises Refused if the site does not allow a run of this configuration, or not at this time of its day."""
    if policy.algorithms and config.algorithm not in policy.algorithms:
        raise Refused(f"algorithm {config.algorithm!r} is not allowed. Allowed: {', '.join(policy.algorithms)}")
    if policy.datasets:
        _check_data(policy, config, own_data)
    if policy.max_rounds is not None and config.rounds > policy.max_rounds:
        raise Refused(f"rounds={config.rounds} is too much: at most {policy.max_rounds} are allowed")
    if policy.min_clients is not None and config.clients < policy.min_clients:
        raise Refused(f"clients={config.clients} is too few: at least {policy.min_clients} must take part")
    for rule in policy.require:
        found = _setting(config, rule.key)
        if found is None or not rule.holds(found):
            raise Refused(f"{rule.key}={_text(found)} is not allowed: the site requires {rule}")
    for rule in policy.forbid:
        found = _setting(config, rule.key)
        if found is not None and rule.holds(found):
            raise Refused(f"{rule.key}={_text(found)} is not allowed: the site forbids {rule}")
    if policy.hours and not any(_within(period, now) for period in policy.hours):
        raise Refused(f"it is {now:%H:%M} here, and the site works {', '.join(policy.hours)}")


def _check_data(policy: Policy, config: RunConfig, own_data: bool) -> None:
    used = [OWN if own_data else config.dataset]
    if config.public:
        used.append(config.params("public").dataset or config.dataset)
    if refused := [name for name in used if name not in policy.datasets]:
        raise Refused(f"dataset {refused[0]!r} is not allowed. Allowed: {', '.join(policy.datasets)}")
    if config.data_root:
        raise Refused(f"data-root={config.data_root!r} is not allowed: the site names its datasets, not the server")


def _named(settings: Mapping[str, Scalar]) -> Iterable[tuple[str, str]]:
    """(kind, name) of everything registered that the settings of a run name, sections included."""
    for kind in registry.KINDS:
        listed = str(settings.get("filters" if kind == "filter" else kind, ""))
        yield from ((kind, name.strip()) for name in listed.split(",") if name.strip())
    for key, value in settings.items():
        section, dot, _ = key.rpartition(".")
        if dot and section not in FIXED:
            yield from ((kind, section) for kind in ("algorithm", "filter"))
        elif section in ("model", "public"):
            yield ("model" if section == "model" else "dataset"), str(value)


def _places(settings: Mapping[str, Scalar]) -> Iterable[tuple[str, str]]:
    """(key, "module:class") of every setting that names a model by its place, parameters of algorithms included."""
    for key, value in settings.items():
        section, _, _ = key.rpartition(".")
        if key == "model" or section == "model" or (section and section not in FIXED):
            yield from ((key, name.strip()) for name in str(value).split(",") if PLACE.fullmatch(name.strip()))


def _provides(requirement: Requirement, point: EntryPoint) -> bool:
    return point.dist is not None and _names(requirement, point.dist.name, point.dist.version)


def _names(requirement: Requirement, package: str, installed: str) -> bool:
    """Whether a requirement names this package, in a version that it allows."""
    named = canonicalize_name(requirement.name) == canonicalize_name(package)
    return named and requirement.specifier.contains(installed, prereleases=True)


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise ConfigError(f"plugins must name packages such as 'my-fedprox==1.0', not {text!r}") from None


def _rules(table: str, tree: Any) -> Iterable[Rule]:
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{table} must be a table of settings, not {tree!r}")
    for key, wanted in _dotted(tree):
        where = f"{table}.{key}"
        if not isinstance(wanted, Mapping):
            yield Rule(key, "is", _scalars(where, wanted))
            continue
        for comparison, limit in wanted.items():
            values = _scalars(where, limit)
            if comparison != "includes" and (len(values) != 1 or isinstance(values[0], bool | str)):
                raise ConfigError(f"{where}: {comparison} needs a number, not {limit!r}")
            yield Rule(key, comparison, values)


def _dotted(tree: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Settings with their rules; clip.norm = 1 without quotes is a table in TOML."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and not (value and set(value) <= set(COMPARISONS)):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _scalars(where: str, value: Any) -> tuple[Scalar, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or any(not isinstance(each, Scalar) for each in values):
        raise ConfigError(
            f"{where} must be a value, a list of values, or one of {', '.join(COMPARISONS)}, not {value!r}"
        )
    return tuple(values)


def _joined(key: str, value: Any) -> Scalar:
    """As `build` takes it: a list becomes a text with commas."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if not isinstance(value, Scalar):
        raise ConfigError(f"{key} must be a value or a list of values, not {value!r}")
    return value


def _check_key(key: str) -> None:
    """Raises ConfigError if no run has this setting."""
    section, dot, name = key.rpartition(".")
    plain = [key_of(f.name) for f in fields(RunConfig) if f.name != "sections"]
    if not dot:
        if key not in plain:
            unknown("setting", key, plain)
    elif section in SECTIONS:
        return  # what parameters there are depends on what the run chooses
    elif owner := _owner(section):
        known = [key_of(f.name) for f in fields(owner.params)]
        if name not in known:
            unknown("setting", key, [f"{section}.{other}" for other in known])
    else:
        unknown("section", section, [*SECTIONS, *registry.names("algorithm"), *registry.names("filter")])


def _owner(section: str) -> Any:
    """The algorithm or filter of this name; None if there is none."""
    kinds = [kind for kind in ("algorithm", "filter") if section in registry.providers(kind)]
    return registry.find(kinds[0], section) if kinds else None


def _setting(config: RunConfig, key: str) -> Any:
    """The value of a setting in a run, its default included; None if what the run chose has no such parameter."""
    _check_key(key)
    section, _, name = key.rpartition(".")
    return getattr(config.params(section) if section else config, name.replace("-", "_"), None)


def _within(period: str, now: datetime) -> bool:
    """Whether it is in a period, which may go past midnight; of one that ends when it begins every moment is."""
    begin, end = (60 * int(part[:2]) + int(part[3:]) for part in period.split("-"))
    minute = 60 * now.hour + now.minute
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def _text(value: Any) -> str:
    """A setting as it is written in a configuration."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def main() -> int:
    try:
        found = read(Path())
        check_names(found)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found.summary()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
