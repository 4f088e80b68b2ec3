"""Checks of data: a node's own, or the datasets below a data root. Reading data also prepares it for the first round."""

from collections.abc import Mapping
from pathlib import Path

from fedsim import registry
from fedsim.config import Scalar
from fedsim.deploy.finding import Finding, ok, problem
from fedsim.errors import FedsimError


def partition_id(config: Mapping[str, Scalar], file: Path) -> Finding:
    """The stable client id of a node, from its node config in `file`."""
    number = config.get("partition-id")
    if isinstance(number, int) and number >= 0:
        return ok("partition-id", f"client {number}")
    told = f"{file} has partition-id={number!r}" if "partition-id" in config else f"{file} has no partition-id"
    return problem("partition-id", told, "give every node its own number from 0 on")


def own_data(path: Path) -> Finding:
    """The npz file, table or image folder of a node, read by the code that a run uses, with its usual parameters."""
    what = f"data {path}"
    try:
        dataset = registry.load("fedsim.partitions.datasets:load")(str(path.absolute()))
    except (FedsimError, OSError) as error:
        return problem(what, str(error), f"put the data at {path}, or correct data in the node's config")
    train, test = len(dataset.labels.train), len(dataset.labels.test)
    return ok(what, f"{path} holds {train} training and {test} test samples of {dataset.classes} classes")


def datasets(data_root: str = "") -> Finding:
    """The file or folder that each dataset would be read from."""
    folder: Path = registry.load("fedsim.partitions.datasets:data_root")(data_root)
    files = [path for suffix in ("npz", "csv", "tsv", "parquet") for path in folder.glob(f"*.{suffix}")]
    found = sorted(files) + sorted(path.parent for path in folder.glob("*/train") if path.is_dir())
    listed = ", ".join(f"{path.stem} from {path.name}" for path in found)
    if not folder.is_dir():
        return ok("data", f"there is no folder {folder}: digits is embedded, others are fetched by torchvision")
    return ok("data", f"{folder} holds {listed or 'no dataset'}; digits is embedded, others are fetched by torchvision")


def cache_folder() -> Path:
    """The folder that prepared data is kept in."""
    folder: Path = registry.load("fedsim.partitions.cache:root")()
    return folder
