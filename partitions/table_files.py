"""CSV and Parquet files as tables that are read in batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import ROWS, Scratch
from fedsim.partitions.raw import PARTS, REGRESSION, Raw
from fedsim.partitions.tables import Table, from_tables

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".parquet", *DELIMITERS)
BLOCK = 1 << 20  # bytes of a CSV file that are parsed at a time; a row must fit in. pyarrow reads some 30 blocks ahead
IMAGES = 64  # rows of encoded images at a time


def find(path: Path) -> Path | None:
    """The table `path.csv`, `path.parquet`, or a folder with `train.csv` or the like; None: there is none."""
    files = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    return next((file for file in files if file.is_file()), path if _part(path, "train") else None)


def is_table(path: Path) -> bool:
    return (path.suffix.lower() in SUFFIXES and path.is_file()) or _part(path, "train") is not None


def files_of(path: Path, params: DataParams) -> dict[str, Path]:
    """The file of each part; the tests may be missing."""
    train, test = (path, None) if path.is_file() else (_part(path, "train"), _part(path, "test"))
    if params.test:
        test = Path(params.test) if Path(params.test).is_absolute() else path.parent / params.test
        if not test.is_file():
            raise ConfigError(f"data.test={params.test}: there is no file {test}")
    return {part: file for part, file in zip(PARTS, (train, test), strict=True) if file}


def from_files(path: Path, spec: Single, params: DataParams, scratch: Scratch) -> Raw:
    """The samples of a table, or of a folder of tables; raises ConfigError with what cannot be read."""
    return from_tables(
        {part: _table(file, params) for part, file in files_of(path, params).items()}, spec, params, scratch
    )


def _part(folder: Path, part: str) -> Path | None:
    return next((file for suffix in SUFFIXES if (file := folder / f"{part}{suffix}").is_file()), None)


def _table(file: Path, params: DataParams) -> Table:
    with _named(file):
        return _parquet(file) if file.suffix.lower() == ".parquet" else csv_table(file, params)


def _parquet(file: Path) -> Table:
    import pyarrow.parquet as pq

    schema = pq.read_schema(file)

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        with _named(file), pq.ParquetFile(file, pre_buffer=False) as opened:
            yield from opened.iter_batches(batch_rows(schema, columns), columns=list(columns), use_threads=False)

    return Table(str(file), schema, batches)


def batch_rows(schema: Any, columns: Sequence[str]) -> int:
    """Few rows at a time if they hold images."""
    import pyarrow as pa

    kinds = (schema.field(name).type for name in columns if name in schema.names)
    return IMAGES if any(pa.types.is_struct(kind) or pa.types.is_binary(kind) for kind in kinds) else ROWS


def csv_table(file: Path, params: DataParams, heading: Sequence[str] = ()) -> Table:
    """The first block of the file decides which columns hold numbers; these are then numbers in all of it.

    `heading`: the names of the columns of a file without them.
    """
    import pyarrow as pa
    from pyarrow import csv

    reading = csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=list(heading) or None)
    parsing = csv.ParseOptions(delimiter=DELIMITERS[file.suffix.lower()], newlines_in_values=True)

    def opened(**conversion: Any) -> Any:
        return csv.open_csv(file, reading, parsing, csv.ConvertOptions(**conversion))

    regression = params.objective == REGRESSION
    named = {params.user, *params.categories, *(() if regression else (params.label,))}
    with _named(file), opened() as reader:
        found = reader.schema

    def kind(field: Any) -> Any:
        if field.name in named:
            return pa.string()
        whole = pa.types.is_integer(field.type) or pa.types.is_null(field.type)
        return pa.float64() if whole else field.type

    schema = pa.schema([(field.name, kind(field)) for field in found])

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        types = {name: schema.field(name).type for name in columns}
        with _named(file), opened(include_columns=list(columns), column_types=types) as reader:
            yield from reader

    return Table(str(file), schema, batches, first=1 if heading else 2)  # a heading is row 1


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Errors of pyarrow name the row and what is wrong with it, but not the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        told = str(error).splitlines()[0] if str(error) else repr(error)
        raise ConfigError(f"{file} cannot be read: {told}") from error
