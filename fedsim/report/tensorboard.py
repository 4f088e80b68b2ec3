"""Runs as TensorBoard event files, with the names that `log=tensorboard` gives the curves while a run is on."""

from collections.abc import Sequence
from pathlib import Path

from fedsim.config import LogParams
from fedsim.report.runs import RunResult, display_names
from fedsim.results.curves import KINDS
from fedsim.results.metric import Metric
from fedsim.trackers.measures import mean_of, worst_of
from fedsim.trackers.tensorboard import EventFile, TensorBoard


def write_tensorboard(runs: Sequence[RunResult], folder: Path, metric: Metric) -> None:
    """One sub-folder per run: the mean over clients and the worst client of each kind of model over the rounds, and the
    virtual seconds. Raises ConfigError if TensorBoard is not installed."""
    TensorBoard(LogParams()).check()
    for name, run in zip(display_names(runs), runs, strict=True):
        file = EventFile(folder / name)
        for kind in KINDS:
            series = run.series(kind, metric.name)
            for number, mean, worst in zip(series.rounds.tolist(), series.mean, series.worst, strict=True):
                file.scalars(number, {mean_of(metric.name, kind): mean, worst_of(kind): worst})
        for number, moment in enumerate(run.steps, start=1):
            file.scalars(number, {"virtual seconds": moment})
        file.close()
