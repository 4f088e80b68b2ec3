"""Files that are damaged between two processes: in the folder of an interrupted run, and in the cache."""

import os
import shutil
from abc import abstractmethod
from pathlib import Path
from random import Random

from fedsim.chaos.fault import Fault, Trial
from fedsim.chaos.forked import forked


class Damage(Fault):
    """A file of an interrupted run is damaged before the run is resumed."""

    loss, refusal, weight = "the run may refuse to go on, and names the file", True, 2

    def inject(self, trial: Trial) -> None:
        self.restore(trial)
        self.damage(trial, trial.run)
        trial.complete()

    def restore(self, trial: Trial) -> None:
        snapshot = forked(trial).interrupted(trial.scenario, trial.rng.choice((0.4, 0.6, 0.8)))
        shutil.copytree(snapshot.parent, trial.folder, dirs_exist_ok=True)  # with the disks of nodes, if there are any

    def damage(self, trial: Trial, folder: Path) -> None:
        files = [
            path for path in folder.rglob("*") if path.is_file() and path.stat().st_size and ".lock" not in path.name
        ]
        path = trial.rng.choice(sorted(files))
        trial.notes.append(f"{self.name}: {path.relative_to(folder)}")
        trial.culprits += [path.name, *([path.parent.name] if folder == trial.cache else [])]
        self.change(path, trial.rng)

    @abstractmethod
    def change(self, path: Path, rng: Random) -> None:
        """Damages a file that is not empty."""


class FlipBits(Damage):
    name, weight = "flipped bits", 4

    def change(self, path: Path, rng: Random) -> None:
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 1, 2, 8))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)


class Truncate(Damage):
    name = "truncated file"

    def change(self, path: Path, rng: Random) -> None:
        os.truncate(path, rng.choice((0, rng.randrange(path.stat().st_size))))


class Zero(Damage):
    name = "zeroed file"

    def change(self, path: Path, rng: Random) -> None:
        content = path.read_bytes()
        start = rng.choice((0, rng.randrange(len(content))))
        path.write_bytes(content[:start] + bytes(len(content) - start))


class Remove(Damage):
    name = "removed file"

    def change(self, path: Path, rng: Random) -> None:
        path.unlink()


class DamageCache(Damage):
    """A file of the cache is damaged before a run, or before it is resumed."""

    def inject(self, trial: Trial) -> None:
        if trial.rng.random() < 0.5:
            self.restore(trial)
        self.damage(trial, trial.own_cache())
        trial.complete()


class FlipBitsInCache(DamageCache, FlipBits):
    name, weight = "flipped bits in the cache", 2


class TruncateInCache(DamageCache, Truncate):
    name, weight = "truncated file in the cache", 1


class ZeroInCache(DamageCache, Zero):
    name, weight = "zeroed file in the cache", 1


class RemoveFromCache(DamageCache, Remove):
    name, weight = "removed file of the cache", 1
