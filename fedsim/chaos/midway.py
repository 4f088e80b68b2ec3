"""Faults in the middle of a run. If the run cannot go on, it says so and is resumed."""

import time
from abc import abstractmethod
from typing import ClassVar

from fedsim.chaos.crashes import earned
from fedsim.chaos.fault import Fault, Process, Trial

ROUNDS = 4  # after one of these something happens
RESUME = ("fedsim resume", "--resume")  # in a message that tells how to go on


class Midway(Fault):
    """Something happens after one of the first rounds."""

    latest: ClassVar[int] = ROUNDS

    def inject(self, trial: Trial) -> None:
        process = trial.start()
        after = trial.rng.randint(1, self.latest)
        trial.notes.append(f"after round {after}")
        await_rounds(trial, process, after)
        self.disturb(trial, process)
        ended = trial.wait(process)
        self.repair(trial)
        if ended.code:
            if not any(words in ended.output for words in RESUME):
                trial.problems.append(f"it does not say how to go on: {ended.output[-300:]}")
            trial.earned = earned(trial)
            trial.finish()

    @abstractmethod
    def disturb(self, trial: Trial, process: Process) -> None:
        """Lets it happen."""

    def repair(self, trial: Trial) -> None:
        """What a user does once the run has ended or goes on, before it is resumed."""


def await_rounds(trial: Trial, process: Process, rounds: int) -> None:
    """Returns once a run has done so many rounds, or has ended."""
    events = trial.level.events(trial)
    deadline = time.monotonic() + trial.level.patience
    while not process.ended(0.005) and time.monotonic() < deadline:
        if events.exists() and events.read_text().count('"kind": "step"') >= rounds:
            return
