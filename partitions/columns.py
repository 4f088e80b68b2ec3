"""Columns of a table as samples: rows of record batches in, arrays out. Errors name the row and the column."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.images import Collection, Source
from fedsim.partitions.raw import Raw, moments, with_tokens
from fedsim.partitions.split import Array
from fedsim.partitions.text import Tokenizer

Arrow = Any  # pyarrow brings no types
KINDS = "numbers, lists of numbers, texts or encoded images"


@dataclass(frozen=True)
class Rows:
    """A record batch, the table it belongs to, and the number of its first row."""

    batch: Arrow
    where: str
    first: int

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Arrow:
        """As an array of plain values."""
        import pyarrow as pa

        column = self.batch.column(name)
        column = column.storage if isinstance(column, pa.ExtensionArray) else column
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    def at(self, row: int, name: str) -> str:
        return f"{self.where}, row {self.first + row}: column {name!r}"

    def numbers(self, name: str) -> Array:
        """A column of numbers, or of lists of numbers of one length, as float32."""
        values = self._numbers(self.column(name), name, 1)
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values.reshape(len(values), -1)).all(1)))
            raise ConfigError(f"{self.at(row, name)} holds NaN or infinity; every value must be a finite number")
        return values

    def _numbers(self, column: Arrow, name: str, per_row: int) -> Array:
        """`per_row`: how many entries of the column belong to a row of the table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) // per_row
            raise ConfigError(
                f"{self.at(row, name)} is empty; every value must be a number: complete or remove the row, or choose "
                "other columns with data.features"
            )
        if not _is_list(column.type):
            if pa.types.is_decimal(column.type):
                column = column.cast(pa.float64())
            return np.asarray(column.to_numpy(zero_copy_only=False))
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if len(lengths) and (wrong := np.flatnonzero(lengths != lengths[0])).size:
            raise ConfigError(
                f"{self.at(int(wrong[0]) // per_row, name)} holds {lengths[wrong[0]]} numbers, but {lengths[0]} in row "
                f"{self.first}: all rows need equally many"
            )
        width = int(lengths[0]) if len(lengths) else 0
        values = self._numbers(column.flatten(), name, per_row * max(1, width))
        return values.reshape(len(column), width, *values.shape[1:])

    def distinct(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """The different values of a column, and for every row the place of its value."""
        column = self.column(name)
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise ConfigError(f"{self.at(row, name)} is empty; every row needs one")
        if not _is_scalar(column.type):
            raise ConfigError(f"{self.where}: column {name!r} holds {column.type}; expected numbers or texts")
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)

    def texts(self, names: Sequence[str]) -> list[str]:
        """The texts of several columns, joined; an empty cell is an empty text."""
        columns = [self.column(name).to_pylist() for name in names]
        return [" ".join(text or "" for text in row) for row in zip(*columns, strict=True)]

    def images(self, name: str) -> list[Source]:
        """Encoded images, or the files that hold them."""
        found: list[Source] = []
        for row, value in enumerate(self.column(name).to_pylist()):
            told = value if isinstance(value, dict) else {"bytes": value}
            if not told.get("bytes") and not told.get("path"):
                raise ConfigError(f"{self.at(row, name)} is empty; every row needs an image")
            found.append(told.get("bytes") or Path(told["path"]))
        return found


class Encoder(Protocol):
    """Makes samples of rows."""

    needs_to_learn: bool

    def learn(self, rows: Rows, trains: NDArray[np.bool_]) -> None:
        """Sees all rows once, before any is encoded; `trains`: which of them are training rows."""

    def encoded(self, rows: Rows) -> Array:
        """N x sample shape."""

    def completed(self, raw: Raw) -> Raw:
        """`raw`, made of the encoded rows, with what the encoder knows about them."""


def encoder_of(schema: Arrow, features: Sequence[str], where: str, params: DataParams, alphabet: str) -> Encoder:
    """What makes samples of these columns; raises ConfigError if they do not go together."""
    kinds = {name: _kind(schema.field(name).type, name, where) for name in features}
    for name in params.categories:
        kinds[name] = "categories"
    found = set(kinds.values())
    if found == {"texts"}:
        return _Texts(features, Tokenizer.of(params, alphabet))
    if found == {"images"} and len(features) == 1:
        return _Images(features[0], params.size)
    if found <= {"numbers", "categories"}:
        return _Numbers(features, params.categories)
    listed = "; ".join(f"{kind}: {', '.join(n for n in features if kinds[n] == kind)}" for kind in sorted(found))
    raise ConfigError(
        f"{where}: the samples must be numbers, texts, or one column of images, not a mixture ({listed}). Choose columns "
        "with data.features, or name columns whose texts are categories in data.categories"
    )


def _kind(kind: Arrow, name: str, where: str) -> str:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _kind(kind.storage_type, name, where)
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type, name, where)
    if _is_list(kind) and _kind(kind.value_type, name, where) == "numbers":
        return "numbers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "texts"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "images"
    if pa.types.is_struct(kind) and {"bytes", "path"} & {field.name for field in kind}:
        return "images"
    if _is_scalar(kind):
        return "numbers"
    raise ConfigError(
        f"{where}: column {name!r} holds {kind}; samples are made of {KINDS}. Choose other columns with data.features"
    )


def _is_list(kind: Arrow) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_scalar(kind: Arrow) -> bool:
    """Numbers, texts, truth values, or a column that is empty so far."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in (*tests, pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


class _Numbers:
    """All columns side by side; of a single column of nested lists the shape is kept."""

    def __init__(self, columns: Sequence[str], categories: Sequence[str]) -> None:
        self._columns, self._categories = columns, categories
        self._values: dict[str, set[Any]] = {name: set() for name in categories}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.needs_to_learn = bool(categories)

    def learn(self, rows: Rows, trains: NDArray[np.bool_]) -> None:
        for name in self._categories:
            values, places = rows.distinct(name)
            self._values[name].update(str(values[place]) for place in np.unique(places[trains]))

    def encoded(self, rows: Rows) -> Array:
        found = [self._one_hot(rows, n) if n in self._categories else self._column(rows, n) for n in self._columns]
        return found[0] if len(found) == 1 else np.concatenate([x.reshape(len(rows), -1) for x in found], axis=1)

    def _column(self, rows: Rows, name: str) -> Array:
        x = rows.numbers(name)
        x = x[:, None] if x.ndim == 1 else x
        expected = self._shapes.setdefault(name, x.shape[1:])
        if x.shape[1:] != expected:
            raise ConfigError(
                f"{rows.at(0, name)} holds numbers of shape {x.shape[1:]}, but {expected} in the rows before"
            )
        return x

    def _one_hot(self, rows: Rows, name: str) -> Array:
        known = {value: place for place, value in enumerate(sorted(self._values[name]))}
        values, places = rows.distinct(name)
        table = np.zeros((len(values), len(known)), np.float32)  # a value that no training row has is all zeros
        for row, value in zip(table, values, strict=True):
            if str(value) in known:
                row[known[str(value)]] = 1
        self._shapes[name] = (len(known),)
        return table[places]

    def completed(self, raw: Raw) -> Raw:
        """With mean and deviation of the training rows; those of categories are left alone."""
        mean, std = (np.array(values) for values in moments(raw.x_train))
        if self._categories:
            widths = [int(np.prod(self._shapes[name])) for name in self._columns]
            plain = np.repeat([name in self._categories for name in self._columns], widths)
            mean, std = np.where(plain, 0, mean), np.where(plain, 1, std)
        return replace(raw, spec=replace(raw.spec, mean=tuple(mean.tolist()), std=tuple(std.tolist())))


class _Texts:
    def __init__(self, columns: Sequence[str], tokenizer: Tokenizer) -> None:
        self._columns, self._tokenizer = columns, tokenizer
        self._counts = tokenizer.counter()
        self._words: dict[str, int] = {}
        self.needs_to_learn = not tokenizer.is_known

    def learn(self, rows: Rows, trains: NDArray[np.bool_]) -> None:
        self._counts.add(text for text, train in zip(rows.texts(self._columns), trains, strict=True) if train)

    def encoded(self, rows: Rows) -> Array:
        self._words = self._words or self._tokenizer.vocabulary(self._counts)
        return self._tokenizer.encoded(rows.texts(self._columns), self._words)

    def completed(self, raw: Raw) -> Raw:
        return with_tokens(raw, self._words, learned=not self._tokenizer.is_known)


class _Images:
    needs_to_learn = True  # the size and whether there is color

    def __init__(self, column: str, side: int) -> None:
        self._column, self._collection = column, Collection(side)

    def learn(self, rows: Rows, trains: NDArray[np.bool_]) -> None:
        for row, image in enumerate(rows.images(self._column)):
            self._collection.look(image, rows.at(row, self._column))

    def encoded(self, rows: Rows) -> Array:
        found = rows.images(self._column)
        return np.stack([self._collection.pixels(image, rows.at(row, self._column)) for row, image in enumerate(found)])

    def completed(self, raw: Raw) -> Raw:
        return raw
