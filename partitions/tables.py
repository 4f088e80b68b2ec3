"""Tables of any length as a dataset: one column holds the targets, one may hold the users, the others are the samples.

A table is read in batches of rows, once for the targets, once more for the vocabulary of texts or categories, and once
for the samples, so memory holds a batch, and a few bytes a row for targets and users.

Numbers (and lists of numbers of one length) become one real-valued vector per row, normalized by mean and deviation of
the training rows; a column of categories becomes one input for each value that training rows have. Texts are joined and
tokenized. Encoded images are decoded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.config import DataParams
from fedsim.errors import ConfigError, unknown
from fedsim.partitions.catalogue import Single
from fedsim.partitions.columns import Encoder, Rows, encoder_of
from fedsim.partitions.large_arrays import ROWS, Scratch
from fedsim.partitions.raw import PARTS, REGRESSION, Raw, held_out, validated
from fedsim.partitions.split import Array

MOST_CLASSES = 100_000
LIMIT = 2**63  # of a class, as it is stored
Arrow = Any  # pyarrow brings no types


@dataclass(frozen=True)
class Table:
    """Rows in batches. Messages count its rows from `first` on."""

    where: str
    schema: Arrow
    batches: Callable[[Sequence[str]], Iterator[Arrow]]  # columns -> record batches with these columns
    first: int = 1
    classes: tuple[str, ...] = ()  # what the source calls the labels 0, 1, ...

    def rows(self, columns: Sequence[str]) -> Iterator[Rows]:
        """Raises ConfigError with the row if the table is broken."""
        done = self.first
        for batch in self.batches(columns):
            if batch.num_rows:
                yield Rows(batch, self.where, done)
                done += batch.num_rows


@dataclass(frozen=True)
class _Targets:
    y: dict[str, Array]
    classes: int  # 0: the largest label plus one, or none
    own_numbers: bool  # whether labels got their numbers from this data alone


def from_tables(tables: dict[str, Table], spec: Single, params: DataParams, scratch: Scratch) -> Raw:
    """Samples of the table `train`, and of `test` if there is one; else a fifth of every class is held out.

    Raises ConfigError with the table, the row and the column that cannot be used.
    """
    train = tables["train"]
    label, user, features = _columns(train, params)
    for table in tables.values():
        _require((label, *features, *filter(None, [user])), table, "it lacks a column of the training table")
    encoder = encoder_of(train.schema, features, train.where, params, spec.alphabet)
    targets = _targets(tables, label, params, spec)
    users = {part: _codes(table, user) for part, table in tables.items()} if user else None
    tests = {part: np.full(len(y), part == "test") for part, y in targets.y.items()}
    if "test" not in tables:
        grouped = np.zeros(len(targets.y["train"])) if params.objective == REGRESSION else targets.y["train"]
        tests["train"] = held_out(grouped)
        if not tests["train"].any():
            raise ConfigError(
                f"{train.where} has too few rows to hold some out as tests: name a table of tests, data.test"
            )
    _learn(encoder, tables, features, tests["train"])
    x = _samples(encoder, tables, features, tests, scratch)
    y = np.concatenate([*targets.y.values()])
    is_test = np.concatenate([*tests.values()])
    arrays = {**x, "y_train": y[~is_test], "y_test": y[is_test]}
    classes = spec.classes or targets.classes
    spec = replace(spec, classes=classes, objective=params.objective if not spec.source else spec.objective)
    owners = _named(users, is_test, scratch) if users else None
    raw = validated(arrays, spec, train.where, owners)
    raw = replace(raw, numbered=("labels",) if targets.own_numbers else ())
    return encoder.completed(raw)


def _columns(table: Table, params: DataParams) -> tuple[str, str, tuple[str, ...]]:
    """The columns of the targets, of the users (or none) and of the samples."""
    names = list(table.schema.names)
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{table.where} has two columns {twice[0]!r}: give every column a name of its own")
    chosen = {"label": [params.label], "user": [params.user] if params.user else []}
    chosen |= {"features": list(params.features), "categories": list(params.categories)}
    for key, given in chosen.items():
        for name in given:
            if name not in names:
                unknown(f"column for data.{key} of {table.where}", name, names)
    features = params.features or tuple(name for name in names if name not in (params.label, params.user))
    features += tuple(name for name in params.categories if name not in features)
    if not features or params.label in features:
        raise ConfigError(
            f"{table.where} needs columns for the samples besides data.label={params.label}; it has: {', '.join(names)}"
        )
    return params.label, params.user, features


def _require(columns: Sequence[str], table: Table, why: str) -> None:
    for name in columns:
        if name not in table.schema.names:
            raise ConfigError(f"{table.where}: {why}: {name!r}; it has: {', '.join(table.schema.names)}")


def _targets(tables: dict[str, Table], label: str, params: DataParams, spec: Single) -> _Targets:
    if params.objective == REGRESSION:
        y = {part: _concatenated([rows.numbers(label) for rows in t.rows([label])], t) for part, t in tables.items()}
        return _Targets(y, 0, own_numbers=False)
    coded = {part: _codes(table, label) for part, table in tables.items()}
    values = list(dict.fromkeys(value for _, found in coded.values() for value in found))
    train = tables["train"]
    if len(values) > MOST_CLASSES:
        raise ConfigError(
            f"{train.where}: column {label!r} has {len(values)} different values, more than {MOST_CLASSES} classes; "
            f"real numbers need data.objective={REGRESSION}"
        )
    listed = tuple(spec.alphabet) or params.classes
    place, own = _places(values, listed, train, label)
    y = {part: np.array([place[v] for v in found], np.int64)[codes] for part, (codes, found) in coded.items()}
    names = listed or train.classes
    return _Targets(y, len(names) or (len(place) if own else 0), own)


def _places(values: Sequence[Any], listed: Sequence[str], table: Table, label: str) -> tuple[dict[Any, int], bool]:
    """Value of the label column -> class, and whether the classes are those of this table alone.

    Values are looked up in `listed`. Without it whole numbers from 0 on are classes already, and all other values are
    numbered in their order.
    """
    numbers = {value: _number(value) for value in values}
    if listed:
        place = {name: number for number, name in enumerate(listed)}
        for value, number in numbers.items():
            if _name(value, number) not in place:
                raise ConfigError(
                    f"{table.where}: column {label!r} holds {value!r}, which is none of the classes: {', '.join(listed)}"
                )
        return {value: place[_name(value, number)] for value, number in numbers.items()}, False
    known = [number for number in numbers.values() if number is not None]
    if len(known) == len(values):
        if any(number != np.floor(number) for number in known):
            raise ConfigError(
                f"{table.where}: column {label!r} holds {next(n for n in known if n != np.floor(n))}; classes are whole "
                f"numbers or texts, real numbers need data.objective={REGRESSION}"
            )
        if (largest := max(known, key=abs)) >= LIMIT or largest < -LIMIT:
            raise ConfigError(f"{table.where}: column {label!r} holds {largest}, which is too large for a class")
        if min(known) >= 0 or table.classes:
            return {value: int(number) for value, number in numbers.items() if number is not None}, False
        ordered = {number: place for place, number in enumerate(sorted(set(known)))}
        return {value: ordered[number] for value, number in numbers.items() if number is not None}, True
    names = sorted(_name(value, number) for value, number in numbers.items())
    return {value: names.index(_name(value, number)) for value, number in numbers.items()}, True


def _number(value: Any) -> float | None:
    """The number that a label is or spells; None: it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _name(value: Any, number: float | None) -> str:
    return str(value) if number is None or number != np.floor(number) else str(int(number))


def _codes(table: Table, column: str) -> tuple[Array, list[Any]]:
    """A code for every row, and the value that each code stands for."""
    values: dict[Any, int] = {}
    codes = []
    for rows in table.rows([column]):
        found, places = rows.distinct(column)
        if "" in found:
            row = int(np.argmax(places == found.index("")))
            raise ConfigError(f"{rows.at(row, column)} is empty; every row needs one")
        numbers = np.array([values.setdefault(value, len(values)) for value in found], np.int32)
        codes.append(numbers[places])
    return _concatenated(codes, table), list(values)


def _concatenated(pieces: Sequence[Array], table: Table) -> Array:
    if not pieces:
        raise ConfigError(f"{table.where} holds no rows")
    return np.concatenate(pieces)


def _learn(encoder: Encoder, tables: dict[str, Table], features: Sequence[str], tests: NDArray[np.bool_]) -> None:
    """Shows the encoder what it must know before it encodes: the training rows, and every row's headers."""
    if not encoder.needs_to_learn:
        return
    for part, table in tables.items():
        done = 0
        for rows in table.rows(features):
            trains = ~tests[done : done + len(rows)] if part == "train" else np.zeros(len(rows), bool)
            encoder.learn(rows, trains)
            done += len(rows)


def _samples(
    encoder: Encoder,
    tables: dict[str, Table],
    features: Sequence[str],
    tests: dict[str, NDArray[np.bool_]],
    scratch: Scratch,
) -> dict[str, Array]:
    stacks = {part: scratch.stack() for part in PARTS}
    for part, table in tables.items():
        done = 0
        for rows in table.rows(features):
            x, test = encoder.encoded(rows), tests[part][done : done + len(rows)]
            stacks["train"].add(x[~test])
            stacks["test"].add(x[test])
            done += len(rows)
    return {f"x_{part}": stack.array() for part, stack in stacks.items()}


def _named(users: dict[str, tuple[Array, list[Any]]], is_test: NDArray[np.bool_], scratch: Scratch) -> Array:
    """The user of every sample as a text, training samples first."""
    width = max(len(str(name)) for _, names in users.values() for name in names)
    stack = scratch.stack()
    named = [(codes, np.array([str(name) for name in names], f"<U{width}")) for codes, names in users.values()]
    for wanted in (False, True):
        done = 0
        for codes, names in named:
            own = codes[is_test[done : done + len(codes)] == wanted]
            for start in range(0, len(own), ROWS):
                stack.add(names[own[start : start + ROWS]])
            done += len(codes)
    return stack.array()
