"""Runs as TensorBoard event files, for those who live there."""

from collections.abc import Sequence
from pathlib import Path

from fedsim.curves import KINDS
from fedsim.errors import ConfigError
from fedsim.report.runs import Run, labels


def write_tensorboard(runs: Sequence[Run], folder: Path) -> None:
    """One sub-folder per run: mean and worst accuracy of each kind over the rounds, and the virtual seconds."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from error
    for name, run in zip(labels(runs), runs, strict=True):
        with SummaryWriter(str(folder / name)) as writer:
            for kind in KINDS:
                series = run.series(kind)
                for number, mean, worst in zip(series.rounds, series.mean, series.worst, strict=True):
                    writer.add_scalar(f"accuracy/{kind}", mean, number)
                    writer.add_scalar(f"worst client/{kind}", worst, number)
            for number, moment in enumerate(run.steps, start=1):
                writer.add_scalar("virtual seconds", moment, number)
