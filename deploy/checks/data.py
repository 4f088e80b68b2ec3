"""Data: a node's own, or the datasets below a data root. Reading it is what prepares it, so the first round need not."""

from collections.abc import Mapping
from pathlib import Path

from deploy.finding import Finding, ok, problem
from fedsim import registry
from fedsim.config import Scalar
from fedsim.errors import FedsimError


def identity(config: Mapping[str, Scalar], file: Path) -> Finding:
    """A node's stable client id."""
    number = config.get("partition-id")
    if isinstance(number, int) and number >= 0:
        return ok("partition-id", f"client {number}")
    told = f"{file} says partition-id={number!r}" if "partition-id" in config else f"{file} says no partition-id"
    return problem("partition-id", told, "give every node its own number from 0 on")


def own(path: Path) -> Finding:
    """The file or image folder a node brings, read by the code a run uses."""
    what = f"data {path}"
    try:
        dataset = registry.load("partitions.datasets:load")(str(path.absolute()))
    except (FedsimError, OSError) as error:
        return problem(what, str(error), f"put the data at {path}, or correct data in the node's config")
    trains, tests = len(dataset.labels.train), len(dataset.labels.test)
    return ok(what, f"{path} holds {trains} training and {tests} test samples of {dataset.classes} classes")


def root(given: str = "") -> Finding:
    """Which file or folder each dataset would be read from."""
    folder: Path = registry.load("partitions.datasets:data_root")(given)
    found = sorted(folder.glob("*.npz")) + sorted(path.parent for path in folder.glob("*/train") if path.is_dir())
    listed = ", ".join(f"{path.stem} from {path.name}" for path in found)
    if not folder.is_dir():
        return ok("data", f"there is no folder {folder}: digits is embedded, others are fetched by torchvision")
    return ok("data", f"{folder} holds {listed or 'no dataset'}; digits is embedded, others are fetched by torchvision")


def cache() -> Path:
    """Where prepared data is kept."""
    folder: Path = registry.load("partitions.cache:home")()
    return folder
