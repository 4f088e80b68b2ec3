"""Processes that are killed, machines that lose their power, disks that fail or are full, clocks that jump."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from fedsim.chaos import disk
from fedsim.chaos.fault import CACHE, RUN, Fault, Trial, checkpoints, is_finished
from fedsim.chaos.forked import forked

PAGE = 4096
YEARS = 3e8  # seconds: about ten years


def earned(trial: Trial) -> int:
    """The rounds that a run that was killed need not do again."""
    return 0 if is_finished(trial.run) else max([0, *checkpoints(trial.run)])


class Kill(Fault):
    """SIGKILL before a file operation, or in the middle of a write. The resumed run may be killed, too."""

    name, weight = "killed at a file operation", 4

    def inject(self, trial: Trial) -> None:
        total = forked(trial).operations(trial.scenario, "run")
        for _ in range(trial.rng.choice((1, 1, 2, 3))):
            number, half = trial.rng.randint(1, total), trial.rng.random() < 0.5
            trial.notes.append(f"killed {'in' if half else 'before'} operation {number}")
            before = disk.at(number, disk.kill(half))
            trial.finish(lambda before=before: disk.Watch(trial.run, before))  # type: ignore[misc]
            trial.earned = earned(trial)
        trial.finish()


class KillSometime(Fault):
    """SIGKILL at a random moment."""

    name, weight = "killed at a random moment", 2
    number = signal.SIGKILL

    def inject(self, trial: Trial) -> None:
        process, after = trial.start(), trial.rng.random() * forked(trial).seconds(trial.scenario)
        trial.notes.append(f"{self.number.name} after {after:.3f} s")
        if not process.ended(after):
            process.send(self.number)
        trial.wait(process)
        trial.earned = earned(trial)
        trial.finish()


class Interrupt(KillSometime):
    """Ctrl-C at a random moment."""

    name, weight = "interrupted", 1
    number = signal.SIGINT


class Terminate(KillSometime):
    """What a machine that shuts down sends to its processes."""

    name, weight = "terminated", 1
    number = signal.SIGTERM


class KillWhileCaching(Fault):
    """SIGKILL while the cache is filled."""

    name = "killed while the cache is filled"

    def inject(self, trial: Trial) -> None:
        number, half = _in_cache(trial), trial.rng.random() < 0.5
        trial.notes.append(f"killed {'in' if half else 'before'} operation {number} in the cache")
        trial.complete(lambda: disk.Watch(trial.cache, disk.at(number, disk.kill(half))))
        trial.finish()


class LosePower(Fault):
    """What was not synced when the power failed is lost, as a whole or in part, or replaced by zeros."""

    name, weight = "power failure", 4

    def inject(self, trial: Trial) -> None:
        number = trial.rng.randint(1, forked(trial).operations(trial.scenario, "run"))
        trial.notes.append(f"power failure before operation {number}")
        trial.run.mkdir(parents=True)
        trial.complete(lambda: disk.PowerLoss(trial.run, number, trial.rng))
        trial.earned = earned(trial) - 1  # the last one may not have been synced
        trial.finish()


class LosePowerWhileCaching(Fault):
    """The same while the cache is filled."""

    name = "power failure while the cache is filled"

    def inject(self, trial: Trial) -> None:
        number = _in_cache(trial)
        trial.notes.append(f"power failure before operation {number} in the cache")
        trial.complete(lambda: disk.PowerLoss(trial.cache, number, trial.rng))
        trial.finish()


def _in_cache(trial: Trial) -> int:
    """Gives the trial an empty cache; returns the number of an operation that fills it."""
    trial.cache.mkdir(parents=True)
    return trial.rng.randint(1, forked(trial).operations(trial.scenario, "cache"))


class FailingDisk(Fault):
    """A file operation fails with an input/output error."""

    name, weight = "input/output error", 2
    error, lasting = errno.EIO, False

    def inject(self, trial: Trial) -> None:
        where = trial.rng.choice(("run", "run", "cache"))
        number = _in_cache(trial) if where == "cache" else _in_run(trial)
        trial.notes.append(f"{os.strerror(self.error)} from operation {number} in the {where} on")
        before = disk.failing(number, self.error, self.lasting)
        told = trial.complete(lambda: disk.Watch(trial.folder / where, before))
        if told.code and os.strerror(self.error) not in told.output:
            trial.problems.append(f"{os.strerror(self.error)!r} is not told: {told.output[-300:]}")
        trial.finish()


class FullDisk(FailingDisk):
    """From some file operation on nothing can be written any more, until there is room again."""

    name, weight = "full disk", 2
    error, lasting = errno.ENOSPC, True


class SmallDisk(Fault):
    """The run, or the cache, is on a disk of its own that is too small, until it is enlarged."""

    name, weight = "small disk", 2

    @classmethod
    def is_possible(cls) -> bool:
        return os.geteuid() == 0 and sys.platform == "linux" and shutil.which("mount") is not None

    def inject(self, trial: Trial) -> None:
        where = trial.rng.choice((RUN, CACHE))
        folder, needed = trial.folder / where, _size(_example(trial, where))
        folder.mkdir(parents=True)
        size = trial.rng.randrange(1, max(2, needed // PAGE))
        trial.notes.append(f"{size} of {needed // PAGE} pages for the {where}")
        _mount(folder, size)
        try:
            told = trial.complete()
            if told.code and os.strerror(errno.ENOSPC) not in told.output:
                trial.problems.append(f"{os.strerror(errno.ENOSPC)!r} is not told: {told.output[-300:]}")
            _mount(folder, 100 * needed // PAGE, "remount,")
            trial.finish()
        finally:
            kept = trial.folder / f"{where} copy"
            shutil.copytree(folder, kept)
            subprocess.run(["umount", str(folder)], check=True)
            folder.rmdir()
            kept.rename(folder)


def _mount(folder: Path, pages: int, options: str = "") -> None:
    """A disk in memory; the files in it are copied out before it is unmounted."""
    options += f"size={pages * PAGE}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", str(folder)], check=True)


def _example(trial: Trial, where: str) -> Path:
    return trial.level.twin(trial.scenario) if where == RUN else trial.level.cache


def _size(folder: Path) -> int:
    return sum(path.stat().st_size // PAGE * PAGE + PAGE for path in folder.rglob("*"))


def _in_run(trial: Trial) -> int:
    return trial.rng.randint(1, forked(trial).operations(trial.scenario, "run"))


class TwoProcesses(Fault):
    """A second process works on the same folder at the same time."""

    name, weight = "two processes at one folder", 2

    def inject(self, trial: Trial) -> None:
        first = trial.start()
        first.ended(trial.rng.random() * forked(trial).seconds(trial.scenario))
        second = trial.start()
        codes = {trial.wait(process).code for process in (second, first)}
        trial.notes.append(f"exit codes {codes}")
        if codes != {0, 2}:
            trial.problems.append(f"one of two processes must work and one be refused, not {codes}")
        trial.finish()


class ClockJumps(Fault):
    """The machine's clock jumps by up to ten years, again and again, in either direction."""

    name, weight = "clock jumps", 2

    def inject(self, trial: Trial) -> None:
        trial.complete(lambda: jump_clock(trial.rng))


def jump_clock(rng: Random) -> None:
    """In the process of a run: the clock of the wall jumps; the monotonic one, as on a real machine, does not."""
    true, jump = time.time, 0.0

    def wrong() -> float:
        nonlocal jump
        jump = rng.uniform(-YEARS, YEARS) if rng.random() < 0.2 else jump
        return true() + jump

    time.time = wrong
