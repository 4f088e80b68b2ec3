"""The declared pages of the book: pages.toml beside this file, and the claims of the papers in claims.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

from fedsim.book.checks import Check
from fedsim.book.records import CELL, SEED, Record, fingerprint
from fedsim.config import RunConfig, Scalar
from fedsim.errors import ConfigError, unknown
from fedsim.sweeps.sweep_file import Sweep, read_sweep

Picture = Literal["values", "curves", "clients", ""]


@dataclass(frozen=True)
class NumberTable:
    """A table of a page: a number of every record. `number_of` names another one for some cells."""

    number: str
    title: str = ""
    number_of: Mapping[str, str] = field(default_factory=dict)

    def of(self, cell: str) -> str:
        return self.number_of.get(cell, self.number)


@dataclass(frozen=True)
class Page:
    """A table or figure of a paper. It is made by `presets`, or by the measurement `measure`."""

    name: str
    title: str
    paper: str
    tables: tuple[NumberTable, ...]
    deviation: str
    presets: tuple[str, ...] = ()  # each may be followed by "key=value" pairs
    full: str = ""  # the preset at full size
    measure: str = ""
    command: str = ""  # of a measurement
    keys: tuple[str, ...] = ()  # of the configuration, which make the columns
    picture: Picture = "values"
    over: Literal["rounds", "times"] = "rounds"
    target: float | None = None  # of the numbers "KIND seconds"
    baseline: str = ""  # the cell that the number "speed-up" is against
    published: Mapping[str, str] = field(default_factory=dict)  # by cell, for pages whose presets have none
    further: tuple[str, ...] = ()  # pictures and pages to link
    checks: tuple[Check, ...] = ()

    @cached_property
    def sweeps(self) -> dict[str, Sweep]:
        """By the name of the folder of the runs."""
        found = {}
        for preset in self.presets:
            name, _, pairs = preset.partition(" ")
            found[preset.replace(" ", "-")] = read_sweep(name, pairs.split())
        return found

    def keys_of(self, title: str, config: RunConfig) -> dict[str, Scalar]:
        """The keys of the record of a run of the cell `title` (empty: of its algorithm)."""
        return {CELL: title or config.algorithm, **{key: _setting(config, key) for key in self.keys}, SEED: config.seed}

    def published_of(self, record: Record, number: str) -> str:
        """The published number beside a number of a record, as text; empty if there is none."""
        cell = str(record.keys.get(CELL, ""))
        if cell in self.published:
            return self.published[cell] if number == self.tables[0].of(cell) else ""
        wanted = {k: v for k, v in record.keys.items() if k != SEED}
        found = self._published.get(tuple(sorted((k, str(v)) for k, v in wanted.items())), {})
        kind = number.split()[0]
        if kind not in found or number.endswith("seconds"):
            return ""
        scale = 1 if kind == "rounds" else 100
        mean, deviation = found[kind]
        form = ".0f" if scale == 1 else ".2f"
        return f"{scale * mean:{form}}" + (f" ± {scale * deviation:{form}}" if deviation is not None else "")

    @cached_property
    def _published(self) -> dict[tuple[tuple[str, str], ...], Mapping[str, tuple[float, float | None]]]:
        found: dict[tuple[tuple[str, str], ...], Mapping[str, tuple[float, float | None]]] = {}
        for sweep in self.sweeps.values():
            for name, config in sweep.cells.items():
                keys = self.keys_of(sweep.titles[name], config)
                same = tuple(sorted((k, str(v)) for k, v in keys.items() if k != SEED))
                found[same] = sweep.published.numbers_for(sweep.titles[name], config)
        return found

    def belongs(self, record: Record) -> bool:
        """Whether the presets of the page still have the run of this record, with the same configuration."""
        found = (
            config
            for sweep in self.sweeps.values()
            for name, config in sweep.cells.items()
            if record.keys == self.keys_of(sweep.titles[name], config)
        )
        alike = any(not record.settings or record.settings == fingerprint(config) for config in found)
        return bool(record.means or self.measure) or alike


@dataclass(frozen=True)
class Claim:
    number: int
    paper: str
    text: str
    untested: str = ""  # why no page checks it


def read_pages() -> dict[str, Page]:
    """All pages, in their order. Raises ConfigError if the file is not valid."""
    return {name: _page(name, tree) for name, tree in _tree("pages.toml").items() if name != "labels"}


def read_labels() -> dict[str, str]:
    """How keys and values are printed in the heads of tables."""
    labels: dict[str, str] = _tree("pages.toml")["labels"]
    return labels


def read_claims() -> list[Claim]:
    """The claims of the papers, by number."""
    tree = _tree("claims.toml")
    untested = {int(number): why for number, why in tree.pop("untested", {}).items()}
    return [
        Claim(int(number), paper, text, untested.get(int(number), ""))
        for paper, claims in tree.items()
        for number, text in claims.items()
    ]


def chosen_pages(names: list[str]) -> dict[str, Page]:
    """The pages of these names; all if there are none. Raises ConfigError for unknown ones."""
    pages = read_pages()
    for name in names:
        if name not in pages:
            unknown("page", name, pages)
    return {name: pages[name] for name in names} if names else pages


def _page(name: str, tree: Mapping[str, Any]) -> Page:
    made = dict(tree)
    tables = tuple(NumberTable(**_names(table)) for table in made.pop("table"))
    checks = tuple(Check(**_names(check)) for check in made.pop("check", []))
    try:
        page = Page(name, tables=tables, **_names(made))
    except TypeError as error:
        raise ConfigError(f"page {name}: {error}") from error
    lists: dict[str, Any] = {f.name: tuple(v) for f in fields(page) if isinstance(v := getattr(page, f.name), list)}
    return replace(page, checks=checks, **lists)


def _names(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in tree.items()}


def _tree(name: str) -> dict[str, Any]:
    return tomllib.loads((files("fedsim") / "book" / name).read_text())


def _setting(config: RunConfig, key: str) -> Scalar:
    value: Scalar = config.flat().get(key, "")
    if value == "" and "." in key:
        section, _, name = key.rpartition(".")
        value = getattr(config.params(section), name.replace("-", "_"))
    return value
