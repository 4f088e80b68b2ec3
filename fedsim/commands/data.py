"""`fedsim data`: fetch or prepare a dataset, or write the clients of a partition as files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import config as configs
from fedsim.commands.run import add_config
from fedsim.errors import ConfigError
from fedsim.results.waiting import waiting

if TYPE_CHECKING:
    from fedsim.partitions.datasets import Dataset

SPLIT = "split"
PRINTED = 20  # the angles between more classes are drawn only


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "data",
        help="fetch or prepare a dataset, or split one into a file per client",
        usage="fedsim data NAME [--root DIR] [--set data.K=V] [--angles [--plot P.png]]\n"
        f"       fedsim data {SPLIT} [FILE.toml] [--set K=V] --out DIR",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help=f"a dataset of `fedsim list datasets`, of a file ROOT/NAME.npz, .csv or .parquet, of a folder ROOT/NAME, an "
        f"absolute path, or hf:OWNER/NAME; `{SPLIT}`: write "
        "what each client of a configuration holds as one npz file",
    )
    parser.add_argument("--root", default="", metavar="DIR", help="where NAME.npz lies (default: $FEDSIM_DATA)")
    parser.add_argument(
        "--angles", action="store_true", help="the angles between its classes, or between the datasets it is made of"
    )
    parser.add_argument("--plot", type=Path, metavar="P.png", help="--angles: draw the samples and the angles")
    add_config(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"`{SPLIT}`: a new folder for the files")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    if args.name == SPLIT:
        return _split(args)
    if args.file or args.out or any(not pair.startswith("data.") for pair in args.set):
        raise ConfigError(
            f"FILE.toml, --out and --set belong to `fedsim data {SPLIT}`; a dataset takes --root, and --set data.K=V"
        )
    if args.plot and not args.angles:
        raise ConfigError("--plot draws the angles of a dataset: give --angles, too")
    if args.plot and not args.plot.parent.is_dir():
        raise ConfigError(f"cannot draw {args.plot}: there is no folder {args.plot.parent}")
    from fedsim.partitions.datasets import load

    with waiting(f"preparing {args.name}") as progress:
        dataset = load(args.name, args.root, configs.read(None, args.set).params("data"), progress)
        samples = len(dataset.targets)
    trains = len(dataset.labels.train)
    targets = f"{dataset.classes} classes" if dataset.classes else f"real-valued targets ({dataset.objective})"
    print(f"{args.name}: {trains} training and {samples - trains} test samples, {targets}, {_shape(dataset)}")
    if tokens := dataset.parts[0].tokens:
        print(f"vocabulary of {dataset.vocabulary} token ids: {tokens}")
    if args.angles:
        _angles(dataset, args.plot)
    return 0


def _angles(dataset: "Dataset", plot: Path | None) -> None:
    from fedsim.partitions.class_angles import angles, embedded
    from fedsim.report.angles import angle_figure, angle_table, cluster_lines
    from fedsim.report.tables import show

    if not (dataset.has_class_labels or len(dataset.parts) > 1):
        raise ConfigError(f"{dataset.name} has no classes, between which there could be angles")
    found = angles(dataset)
    if found.of == "datasets" or len(found.names) <= PRINTED:
        show(angle_table(found))
    for line in cluster_lines(found):
        print(line)
    if plot:
        angle_figure(found, *embedded(dataset, found)).savefig(plot, dpi=130)


def _shape(dataset: "Dataset") -> str:
    sizes, part = dataset.shape, dataset.parts[0]
    if part.is_images:
        return f"images {sizes[1]}x{sizes[2]}x{sizes[0]}"
    return f"samples {'x'.join(map(str, sizes))} ({part.dtype})"


def _split(args: argparse.Namespace) -> int:
    from fedsim.partitions.export import export

    if args.out is None or args.root:
        raise ConfigError(f"`fedsim data {SPLIT}` needs --out DIR, and takes data-root with --set")
    config = configs.read(args.file, args.set)
    with waiting(f"splitting {config.dataset}") as progress:
        export(config, args.out, progress)
    print(f"{config.clients} silos of {config.dataset} (partition={config.partition}): {args.out}/client-*.npz")
    return 0
