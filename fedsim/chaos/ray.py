"""Runs on Ray: a worker, the raylet, the GCS or the run itself is killed; a worker hangs."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from fedsim.chaos import messages
from fedsim.chaos.crashes import earned
from fedsim.chaos.fault import Fault, Prepare, Process, Scenario, Trial
from fedsim.chaos.forked import Forked, command
from fedsim.chaos.grid import Grid
from fedsim.chaos.midway import ROUNDS, Midway, await_rounds
from fedsim.chaos.process import Copy, command_of, members

LONGER = ("workers=2", "local-steps=150", "rounds=6", "timeout=8")  # there must be time to kill something
RAY_ENDS = 120.0  # seconds for Ray's own processes to end after a run that was killed
WORKER, RAYLET, GCS = "ray::Worker", "raylet/raylet", "gcs_server"  # in command lines


class KillPart(Midway):
    """SIGKILL for one of Ray's processes."""

    part: str
    number = signal.SIGKILL

    def disturb(self, trial: Trial, process: Process) -> None:
        found = sorted(pid for pid in members(process.pid) if self.part in command_of(pid))
        trial.notes.append(self.part)
        if found:
            with suppress(ProcessLookupError):
                os.kill(trial.rng.choice(found), self.number)


class KillWorker(KillPart):
    name, part = "killed worker", WORKER


class KillRaylet(KillPart):
    name, part = "killed raylet", RAYLET


class KillGcs(KillPart):
    name, part = "killed GCS", GCS


class HangWorker(KillPart):
    """A worker stops in the middle of a job and never goes on."""

    name, part, scenarios = "hung worker", WORKER, ("fedavg",)
    loss = "the client's result of that round"
    number = signal.SIGSTOP

    def inject(self, trial: Trial) -> None:
        super().inject(trial)
        messages.missing_twin(trial)


class KillRun(Fault):
    """SIGKILL for the run itself: Ray's processes end, and the run is resumed."""

    name = "killed run"

    def inject(self, trial: Trial) -> None:
        process, after = trial.start(), trial.rng.randint(1, ROUNDS)
        await_rounds(trial, process, after)
        process.send(signal.SIGKILL)
        trial.notes.append(f"after round {after}")
        trial.wait(process)
        trial.earned = earned(trial)
        trial.finish()


class Ray(Forked):
    """`fedsim run`; a run that must be resumed goes on in one process, with the same result."""

    name, share, patience = "ray", 1, 150.0
    scenarios = (
        Scenario("fedavg", ("algorithm=fedavg", *LONGER)),
        Scenario("local", ("algorithm=local", *LONGER)),
        Scenario("fedbuff", ("algorithm=fedbuff", "stragglers=speed", *LONGER)),
    )
    faults = (KillWorker, KillRaylet, KillGcs, HangWorker, KillRun)

    def start(self, trial: Trial, prepare: Prepare) -> Copy:
        copy = super().start(trial, prepare)
        copy.grace = RAY_ENDS
        return copy

    def run(self, trial: Trial) -> int:
        from fedsim.cli import main

        words = command(trial, "ray")
        return main([*words, "--engine", "inline"] if words[0] == "resume" else words)

    def failing_twin(self, scenario: Scenario, jobs: list[messages.Hit]) -> Path:
        """The run in which these results are missing, on a Flower grid in one process."""
        return Grid(self.folder).failing_twin(scenario, jobs)
