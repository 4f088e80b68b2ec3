"""Where a dataset comes from: the user's files, the authors' files, or a library that fetches it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from fedsim import registry
from fedsim.config import DataParams
from fedsim.errors import ConfigError
from fedsim.partitions import hub, image_folder, readers, table_files
from fedsim.partitions.catalogue import Single
from fedsim.partitions.large_arrays import Scratch
from fedsim.partitions.raw import Raw

EXPECTED = (
    "an npz file with x_train, y_train, x_test, y_test, a table .csv, .tsv or .parquet, or a folder with "
    "train/CLASS/*.png or train.csv"
)


@dataclass(frozen=True)
class Source:
    """What a prepared copy depends on, and how it is read."""

    origin: tuple[object, ...]
    read: Callable[[Scratch], Raw]


def user_data(name: str, root: Path) -> Path | None:
    """The user's file or folder, or None; raises ConfigError for an absolute path that holds no dataset."""
    path = Path(name)
    if path.is_absolute():
        if not (path.is_file() or image_folder.is_image_folder(path) or table_files.is_table(path)):
            raise ConfigError(f"{name} {'holds no dataset' if path.is_dir() else 'is not there'}; expected {EXPECTED}")
        return path
    file, folder = root / f"{name}.npz", root / name
    if file.is_file():
        return file
    if folder.is_file() and folder.suffix in (".npz", *table_files.SUFFIXES):
        return folder
    return table_files.find(folder) or (folder if image_folder.is_image_folder(folder) else None)


def find(name: str, spec: Single, root: Path, params: DataParams) -> Source:
    """The first place that has the dataset: the user's data, no files at all, the published files, a download."""
    if name.startswith(hub.PREFIX):
        return _hub(name.removeprefix(hub.PREFIX), root, spec, params)
    if own := user_data(name, root):
        return _own(own, spec, params)
    if spec.reader:
        return Source((spec.reader,), lambda scratch: registry.load(spec.reader)(spec))
    for folder in spec.folders:
        if (root / folder).exists():
            return Source(
                (spec.files, str((root / folder).resolve()), _stamp(root / folder), *_choices(params)),
                partial(registry.load(spec.files), spec, root / folder, params),
            )
    return Source(("fetched", str(root.resolve()), *_choices(params)), partial(_fetched, spec, root, params))


def _own(path: Path, spec: Single, params: DataParams) -> Source:
    given = (str(path.resolve()), *_choices(params))
    if image_folder.is_image_folder(path):
        stamps = image_folder.file_stamps(path)
        return Source(("images", stamps, *given), partial(image_folder.from_folder, path, spec, params))
    if table_files.is_table(path):
        files = [_stamp(file) for file in table_files.files_of(path, params).values()]
        return Source(("table", files, *given), partial(table_files.from_files, path, spec, params))
    return Source(("npz", _stamp(path), *given), partial(readers.from_npz, path, spec, params))


def _hub(name: str, root: Path, spec: Single, params: DataParams) -> Source:
    local = hub.folder_of(name, root)
    stamps = [_stamp(file) for file in sorted(local.rglob("*")) if file.is_file()] if local else []
    return Source(("hub", name, stamps, *_choices(params)), partial(hub.from_hub, name, root, spec, params))


def _fetched(spec: Single, root: Path, params: DataParams, scratch: Scratch) -> Raw:
    """The dataset as torchvision or the hub have it; raises ConfigError with every way to bring it."""
    ways = [f"put it at {root / spec.name}.npz (arrays x_train, y_train, x_test, y_test)"]
    if spec.folders:
        ways.append(f"put the published files at {root / spec.folders[0]}, from {spec.source}")
    elif spec.source:
        ways[0] += f", made from {spec.source}"
    try:
        if spec.vision:
            return readers.from_torchvision(spec, root)
        if spec.fetch:
            return registry.load(spec.files)(spec, registry.load(spec.fetch)(root), params, scratch)  # type: ignore[no-any-return]
        if spec.hub:
            return hub.from_hub(spec.hub.name, root, spec, replace(params, **spec.hub.params), scratch)  # type: ignore[arg-type]
    except Exception as error:  # a download can fail in many ways; the ways out are always the same
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        library = "the Hugging Face hub" if spec.hub else "torchvision"
        ways.append(f"let `fedsim data {spec.name}` fetch it from {library}, which failed just now: {reason}")
        raise ConfigError(f"dataset {spec.name!r} is not here. Either {', or '.join(ways)}") from error
    raise ConfigError(
        f"dataset {spec.name!r} is not here. {'Either ' if len(ways) > 1 else 'Please '}{', or '.join(ways)}"
    )


def _choices(params: DataParams) -> tuple[object, ...]:
    """The parameters that differ from the usual ones, and the stamp of the file that one of them names."""
    usual = asdict(DataParams())
    chosen = {key: value for key, value in asdict(params).items() if value != usual[key]}
    tokens = Path(params.tokens)
    return (chosen, *([_stamp(tokens)] if params.tokens and tokens.is_file() else [])) if chosen else ()


def _stamp(file: Path) -> tuple[str, int, int]:
    """Of a folder: changes when files are added to it or removed."""
    stat = file.stat()
    return file.name, stat.st_size, stat.st_mtime_ns
