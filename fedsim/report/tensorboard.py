"""Runs as TensorBoard event files."""

from collections.abc import Sequence
from pathlib import Path

from fedsim.errors import ConfigError
from fedsim.report.runs import RunResult, display_names
from fedsim.results.curves import KINDS
from fedsim.results.metric import Metric


def write_tensorboard(runs: Sequence[RunResult], folder: Path, metric: Metric) -> None:
    """One sub-folder per run: the mean over clients and the worst client of each kind of model over the rounds, and the
    virtual seconds."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from error
    for name, run in zip(display_names(runs), runs, strict=True):
        with SummaryWriter(str(folder / name)) as writer:
            for kind in KINDS:
                series = run.series(kind, metric.name)
                for number, mean, worst in zip(series.rounds, series.mean, series.worst, strict=True):
                    writer.add_scalar(f"{metric.name}/{kind}", mean, number)
                    writer.add_scalar(f"worst client/{kind}", worst, number)
            for number, moment in enumerate(run.steps, start=1):
                writer.add_scalar("virtual seconds", moment, number)
