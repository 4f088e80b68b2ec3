"""Which runs a report is about: those in the folders it was given, and those a sweep asked for that are not there."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedsim.errors import ConfigError
from fedsim.plan import PLAN, Planned, Trial, plan_of
from fedsim.record import MANIFEST
from fedsim.report.groups import Group, group
from fedsim.report.runs import Run


@dataclass(frozen=True)
class Selection:
    runs: list[Run]
    missing: list[tuple[Path, Planned]] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    @cached_property
    def groups(self) -> list[Group]:
        return group(self.runs, [planned for _, planned in self.missing])


def select(folders: Sequence[Path]) -> Selection:
    """The runs in these folders. What is not a run, or has no round yet, is named and left out; so is a run that is not
    finished, unless it was asked for by itself."""
    found: dict[Path, Run] = {}
    missing: dict[Path, Planned] = {}
    trials: list[Trial] = []
    for folder in folders:
        whole = not (folder / MANIFEST).exists() and folder.is_dir()  # a folder of runs, not a run
        plan = plan_of(folder) if whole else None
        with _loading():
            for each in _inside(folder) if whole else [folder]:
                try:
                    found[each.resolve()] = _usable(each, alone=not whole)
                except ConfigError as problem:
                    print(f"left out: {problem}", file=sys.stderr)
        if plan is not None:
            absent = {folder / name: planned for name, planned in plan.runs.items()}
            missing |= {path: planned for path, planned in absent.items() if path.resolve() not in found}
            trials += plan.trials
    for path in missing:
        print(f"missing: {path}", file=sys.stderr)
    if not found:
        raise ConfigError(f"no run to report on in {', '.join(map(str, folders))}")
    return Selection(list(found.values()), list(missing.items()), trials)


@contextmanager
def _loading() -> Iterator[None]:
    """Everything that is loaded stays: to look for garbage in it again and again takes as long as the loading."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _inside(folder: Path) -> list[Path]:
    """Every folder in a folder of runs; in the folder of a sweep, those it asked for, in its order."""
    planned = [folder / name for name in plan_of(folder).runs]
    there = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    if (folder / PLAN).exists():
        there = [path for path in there if (path / MANIFEST).exists()]  # the rest is missing, or its search
    known = [path for path in planned if path in there]
    return [*known, *(path for path in there if path not in planned)] or [folder]


def _usable(folder: Path, alone: bool) -> Run:
    """A run with something to report; `alone`: it was asked for by itself."""
    try:
        run = Run.load(folder)
        status, steps, rounds = run.manifest["status"], len(run.steps), run.config["rounds"]
        empty = not (steps and len(run.series("personal").rounds) and run.work() and run.costs)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder} is not a run of this program: {type(error).__name__} {error}") from error
    if empty:
        raise ConfigError(f"{folder} holds no evaluated round yet")
    if status != "finished":
        unfinished = f"{folder} is not finished: {status} after round {steps} of {rounds}"
        if not alone:
            raise ConfigError(unfinished)
        print(f"note: {unfinished}", file=sys.stderr)
    return run
