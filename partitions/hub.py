"""Datasets of the Hugging Face hub, `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, read by its library `datasets`.

A folder `OWNER/NAME` below the data root is used before the hub is asked, so a copy of the dataset's files works without
a network; an absolute path, `hf:/path`, names such a folder itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.raw import Raw
from fedsim.partitions.table_files import batch_rows
from fedsim.partitions.tables import Table, from_tables

PREFIX = "hf:"
TESTS = ("test", "validation", "valid", "val", "dev")  # splits that are taken for tests, the first that is there


def folder_of(name: str, root: Path) -> Path | None:
    """The local copy of the dataset; None: it is only on the hub."""
    folder = root / name  # an absolute path stays as it is
    return folder if folder.is_dir() else None


def from_hub(name: str, root: Path, spec: Single, params: DataParams, scratch: Scratch) -> Raw:
    """The dataset OWNER/NAME; raises ConfigError if it cannot be had or has no such columns or splits."""
    splits = _splits(name, root, params)
    train = splits["train"] if "train" in splits else next(iter(splits.values()))
    if params.test and params.test not in splits:
        raise ConfigError(f"{PREFIX}{name} has no split data.test={params.test}. Its splits: {', '.join(splits)}")
    test = params.test or next((split for split in TESTS if split in splits and splits[split] is not train), "")
    tables = {"train": _table(train, f"{PREFIX}{name}", params)}
    if test:
        tables["test"] = _table(splits[test], f"{PREFIX}{name} ({test})", params)
    return from_tables(tables, spec, params, scratch)


def _splits(name: str, root: Path, params: DataParams) -> dict[str, Any]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"{PREFIX}{name} is read by Hugging Face's library: install it with pip install 'fedsim-flower[hub]'"
        ) from error
    owner, _, revision = name.partition("@")
    local = folder_of(owner, root)
    try:
        return dict(datasets.load_dataset(str(local or owner), params.subset or None, revision=revision or None))
    except Exception as error:  # the library fails in many ways; the ways out are always the same
        told = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"{PREFIX}{name} cannot be loaded: {told}. Without a network, put its files into the folder {root / owner}"
        ) from error


def _table(split: Any, where: str, params: DataParams) -> Table:
    names = getattr(split.features.get(params.label), "names", None) or ()  # of a ClassLabel
    schema = split.features.arrow_schema

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        chosen = split.select_columns(list(columns)).with_format("arrow")
        for table in chosen.iter(batch_rows(schema, columns)):
            yield from table.combine_chunks().to_batches()

    return Table(where, schema, batches, classes=tuple(names))
