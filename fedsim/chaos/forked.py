"""A level whose runs happen in copies of this process."""

import os
import shutil
from abc import abstractmethod
from pathlib import Path
from random import Random

from fedsim.chaos import disk
from fedsim.chaos.fault import Fault, Level, Prepare, Scenario, Trial
from fedsim.chaos.process import Copy
from fedsim.results.record import MANIFEST

COUNT = "operations.txt"


class NoFault(Fault):
    """Nothing goes wrong."""

    name = "none"

    def inject(self, trial: Trial) -> None:
        trial.complete()


class Forked(Level):
    """What trials are compared with, or begin with, is made when it is first asked for."""

    patience = 60.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seconds: dict[Scenario, float] = {}
        self._counts: dict[tuple[Scenario, str], int] = {}

    @abstractmethod
    def run(self, trial: Trial) -> int:
        """In the copy: starts the run or goes on with it; returns the exit code."""

    def start(self, trial: Trial, prepare: Prepare) -> Copy:
        cache = trial.cache if trial.cache.exists() else self.cache

        def call() -> int:
            os.environ["FEDSIM_CACHE"] = str(cache)
            os.chdir(trial.folder)
            prepare()
            return self.run(trial)

        return Copy(call, trial.folder / f"output-{trial.started}.txt")

    def twin(self, scenario: Scenario) -> Path:
        trial = self._plain_trial("twins", scenario)
        if not trial.run.exists():
            self._complete(trial)  # fills the cache, too
            shutil.rmtree(trial.folder)
            self._seconds[scenario] = self._complete(trial)
        return trial.run

    def seconds(self, scenario: Scenario) -> float:
        """How long the undisturbed run takes."""
        self.twin(scenario)
        return self._seconds[scenario]

    def operations(self, scenario: Scenario, where: str) -> int:
        """How many file operations the undisturbed run makes in `run`, or in a `cache` that is empty at first."""
        if (scenario, where) not in self._counts:
            trial = self._plain_trial(f"operations in {where}", scenario)
            total, watched = trial.folder / COUNT, trial.folder / where
            watched.mkdir(parents=True)
            self._complete(trial, lambda: disk.Watch(watched, lambda number, _: total.write_text(str(number))))
            self._counts[scenario, where] = int(total.read_text())
        return self._counts[scenario, where]

    def interrupted(self, scenario: Scenario, share: float) -> Path:
        """The folder of a run that was killed after this share of its file operations."""
        trial = self._plain_trial(f"interrupted at {share:.0%}", scenario)
        if not trial.run.exists():
            number = int(share * self.operations(scenario, "run"))
            trial.complete(lambda: disk.Watch(trial.run, disk.at(number, disk.kill())))
        return trial.run

    def _plain_trial(self, kind: str, scenario: Scenario) -> Trial:
        return Trial(0, self, NoFault(), scenario, Random(0), self.folder / kind / scenario.name)

    def _complete(self, trial: Trial, prepare: Prepare = lambda: None) -> float:
        ended = trial.complete(prepare)
        if ended.code != 0:
            raise RuntimeError(f"the undisturbed run of {trial.scenario.name} failed: {ended.output}")
        return ended.seconds


def forked(trial: Trial) -> Forked:
    """The level of a trial whose runs are copies of this process."""
    assert isinstance(trial.level, Forked)
    return trial.level


def command(trial: Trial, engine: str) -> list[str]:
    """What a user types after `fedsim`: to go on with the run if there is one, else to start it."""
    if (trial.run / MANIFEST).exists():
        return ["resume", str(trial.run)]
    settings = [word for setting in trial.config for word in ("--set", setting)]
    return ["run", "--engine", engine, "--out", str(trial.run), *settings]
