"""The runs of a report: those found in the given folders, and those that a sweep planned but that do not exist."""

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from fedsim.errors import ConfigError
from fedsim.report.runs import RunResult, choose_metric
from fedsim.report.settings import Setting, group_by_setting
from fedsim.results.metric import Metric
from fedsim.results.record import holds_run
from fedsim.sweeps.manifest import SWEEP_MANIFEST, PlannedRun, SearchResult, read_sweep_manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunCollection:
    runs: list[RunResult]
    missing: list[tuple[Path, PlannedRun]] = field(default_factory=list)
    searches: list[SearchResult] = field(default_factory=list)
    metric_name: str | None = None  # None: the main metric of the runs
    heatmap: tuple[str, ...] = ()  # the keys of the rows and columns of a heat map; empty: none

    @cached_property
    def metric(self) -> Metric:
        """The metric to report. Raises ConfigError if the runs have different objectives."""
        return choose_metric(self.runs, self.metric_name)

    @cached_property
    def settings(self) -> list[Setting]:
        return group_by_setting(self.runs, [planned for _, planned in self.missing], self.metric)

    def by_objective(self) -> "dict[str, RunCollection]":
        """One collection per objective. A missing run belongs to the objective of the runs on its dataset, if there are
        any, else to the first objective."""
        objective_of = {run.config.get("dataset"): run.objective for run in self.runs}
        first = self.runs[0].objective
        parts = {run.objective: replace(self, runs=[], missing=[], searches=[]) for run in self.runs}
        for run in self.runs:
            parts[run.objective].runs.append(run)
        for path, planned in self.missing:
            parts[objective_of.get(planned.config.get("dataset"), first)].missing.append((path, planned))
        parts[first].searches.extend(self.searches)
        return parts


def collect_runs(folders: Sequence[Path], metric_name: str | None = None, heatmap: Sequence[str] = ()) -> RunCollection:
    """Reads the runs in these folders, which are run folders or folders of run folders. `heatmap`: instead of that of the
    sweep, if there is only one.

    Folders that hold no run or no evaluated round are logged and left out; so are unfinished runs, unless their folder
    was given itself. Raises ConfigError if no run remains.
    """
    found: dict[Path, RunResult] = {}
    missing: dict[Path, PlannedRun] = {}
    searches: list[SearchResult] = []
    for folder in folders:
        has_runs = not holds_run(folder) and folder.is_dir()
        with _without_garbage_collection():
            for each in _run_folders(folder) if has_runs else [folder]:
                try:
                    found[each.resolve()] = _load(each, allow_unfinished=not has_runs)
                except ConfigError as problem:
                    log.warning("left out: %s", problem)
        if has_runs:
            sweep = read_sweep_manifest(folder)
            planned_runs = {folder / name: planned for name, planned in sweep.runs.items()}
            missing |= {path: planned for path, planned in planned_runs.items() if path.resolve() not in found}
            searches += sweep.searches
            heatmap = heatmap or (sweep.heatmap if len(folders) == 1 else ())
    for path in missing:
        log.warning("missing: %s", path)
    if not found:
        raise ConfigError(f"no run to report on in {', '.join(map(str, folders))}")
    return RunCollection(list(found.values()), list(missing.items()), searches, metric_name, tuple(heatmap))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Nothing that is loaded is freed, and searching it for garbage takes as long as loading it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _run_folders(folder: Path) -> list[Path]:
    """Every folder in a folder of runs; in the folder of a sweep, the planned runs first, in their order."""
    planned = [folder / name for name in read_sweep_manifest(folder).runs]
    existing = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    if (folder / SWEEP_MANIFEST).exists():
        existing = [path for path in existing if holds_run(path)]  # others are missing runs, or the search
    known = [path for path in planned if path in existing]
    return [*known, *(path for path in existing if path not in planned)] or [folder]


def _load(folder: Path, allow_unfinished: bool) -> RunResult:
    """The run in this folder. Raises ConfigError if it is none, has no evaluated round, or is not finished."""
    try:
        run = RunResult.load(folder)
        if run.planned.clients:
            run = run.only(run.planned.clients)
        status, steps, rounds = run.manifest["status"], len(run.steps), run.config["rounds"]
        empty = not (steps and len(run.series("personal").rounds) and run.jobs and run.costs)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder} is not a run of this program: {type(error).__name__} {error}") from error
    if empty:
        raise ConfigError(f"{folder} holds no evaluated round yet")
    if status != "finished":
        unfinished = f"{folder} is not finished: {status} after round {steps} of {rounds}"
        if not allow_unfinished:
            raise ConfigError(unfinished)
        log.warning("note: %s", unfinished)
    return run
