"""A campaign: faults drawn by a seed, tried one after the other on one or several levels, and counted."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from fedsim.chaos import oracle
from fedsim.chaos.fault import Fault, Level, Trial
from fedsim.registry import load

LEVELS = {
    "inline": "fedsim.chaos.inline:Inline",
    "grid": "fedsim.chaos.grid:Grid",
    "ray": "fedsim.chaos.ray:Ray",
    "federation": "fedsim.deploy.chaos.federation:Federation",
}
OUTCOMES = (oracle.SAME, oracle.REFUSED, oracle.LOST, oracle.WRONG, oracle.HUNG)
FAILED = (oracle.WRONG, oracle.HUNG)


@dataclass(frozen=True)
class Result:
    """What became of one trial."""

    number: int
    level: str
    fault: str
    scenario: str
    outcome: str  # one of OUTCOMES
    problems: list[str]
    notes: list[str]  # what was done
    seconds: float
    cpu: float


def attempt(trial: Trial) -> tuple[str, list[str]]:
    """Injects the fault of a trial; returns the outcome and what is wrong with it."""
    trial.level.twin(trial.scenario)
    try:
        trial.fault.inject(trial)
    except RuntimeError as error:  # a command that must succeed did not
        return oracle.WRONG, [str(error), *trial.level.leftovers()]
    return oracle.judge(trial)


def draw(seed: int, level: type[Level], number: int) -> tuple[type[Fault], Random]:
    """The fault of the trial with this number, and its random numbers. Each fault occurs as often as its weight says."""
    cards = [fault for fault in level.faults if fault.is_possible() for _ in range(fault.weight)]
    Random(f"{seed}/{level.name}/{number // len(cards)}").shuffle(cards)
    return cards[number % len(cards)], Random(f"{seed}/{level.name}/{number}/trial")


def schedule(levels: Sequence[type[Level]], faults: int) -> Iterator[tuple[type[Level], int]]:
    """The levels of so many trials, each with its number there: by share, and evenly mixed."""
    done = dict.fromkeys(levels, 0)
    for _ in range(faults):
        level = min(levels, key=lambda each: (done[each] + 1) / each.share)
        yield level, done[level]
        done[level] += 1


class Campaign:
    """Tries faults in folders below `folder`; those of failed trials are kept."""

    def __init__(self, seed: int, levels: Sequence[str], folder: Path) -> None:
        self.seed, self.folder, self.results = seed, folder, list[Result]()
        self._classes: list[type[Level]] = [load(LEVELS[name]) for name in levels]

    def run(
        self, faults: int, minutes: float, report: Callable[[Result], None], first: int = 0, only: int | None = None
    ) -> None:
        """Tries so many faults; no trial begins after so many minutes. `first`, `only`: those from this number of a level
        on, or that with this number alone."""
        deadline = time.monotonic() + 60 * minutes
        for kind in self._classes:
            shutil.rmtree(self.folder / kind.name, ignore_errors=True)  # of an earlier campaign
        with ExitStack() as stack:
            opened = {kind: kind(self.folder) for kind in self._classes}
            for level in opened.values():
                stack.callback(level.close)
            for kind, number in schedule(self._classes, faults):
                if time.monotonic() > deadline:
                    return
                if number >= first and only in (None, number):
                    self.results.append(self._try(opened[kind], number))
                    report(self.results[-1])

    def _try(self, level: Level, number: int) -> Result:
        fault, rng = draw(self.seed, type(level), number)
        scenario = rng.choice([s for s in level.scenarios if not fault.scenarios or s.name in fault.scenarios])
        trial = Trial(number, level, fault(), scenario, rng, level.folder / "trials" / str(number))
        began = time.monotonic()
        outcome, problems = attempt(trial)
        if outcome not in FAILED:
            shutil.rmtree(trial.folder)
        seconds, cpu = time.monotonic() - began, sum(ended.cpu for ended in trial.ended)
        told = (trial.notes, round(seconds, 3), round(cpu, 3))
        return Result(number, level.name, fault.name, scenario.name, outcome, problems, *told)

    def matrix(self) -> list[dict[str, Any]]:
        """A row for each fault and level: how often it was injected, and what came of it."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for result in self.results:
            new = {"level": result.level, "fault": result.fault, "injected": 0, **dict.fromkeys(OUTCOMES, 0)}
            row = rows.setdefault((result.level, result.fault), new)
            row["injected"] += 1
            row[result.outcome] += 1
        return [rows[key] for key in sorted(rows)]

    def failed(self) -> list[Result]:
        return [result for result in self.results if result.outcome in FAILED]

    def as_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "matrix": self.matrix(), "trials": [asdict(result) for result in self.results]}
