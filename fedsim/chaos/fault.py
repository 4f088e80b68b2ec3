"""What a fault is, and the trial of one fault in one run."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

from fedsim.chaos.process import Ended
from fedsim.errors import FedsimError
from fedsim.results.checkpoint import FOLDER as CHECKPOINT
from fedsim.results.events import EVENTS
from fedsim.results.record import read_manifest, read_summary

RUN, CACHE = "run", "cache"  # in the folder of a trial
BASE = ("model=mlr", "clients=4", "rounds=5", "checkpoint-every=1", "local-steps=2", "batch-size=64")
Prepare = Callable[[], object]


def is_finished(run: Path) -> bool:
    """Whether a run folder says that its run is finished."""
    try:
        return bool(read_manifest(run)["status"] == "finished")
    except (FedsimError, KeyError, TypeError):
        return False


def checkpoints(run: Path) -> list[int]:
    """The rounds of the checkpoints in a run folder."""
    return sorted(int(path.stem.removeprefix("step-")) for path in (run / CHECKPOINT).glob("step-*.npz"))


@dataclass(frozen=True)
class Scenario:
    """A small run that faults are injected into."""

    name: str
    settings: tuple[str, ...]  # k=v


class Fault(ABC):
    """Something that goes wrong. Without a `loss` the run must end as its undisturbed twin, if necessary after a resume."""

    name: ClassVar[str]
    loss: ClassVar[str] = ""  # what may be lost, in words
    refusal: ClassVar[bool] = False  # the run may also end with an error that names the culprit
    scenarios: ClassVar[tuple[str, ...]] = ()  # where it can be injected; empty: everywhere
    weight: ClassVar[int] = 1  # how often it is drawn, compared with others

    @classmethod
    def is_possible(cls) -> bool:
        """Whether this machine and this user can do it."""
        return True

    @abstractmethod
    def inject(self, trial: "Trial") -> None:
        """Starts the run of the trial, disturbs it, and lets it go on to its end as a user would."""


@dataclass
class Trial:
    """One fault in one run, in a folder of its own."""

    number: int
    level: "Level"
    fault: Fault
    scenario: Scenario
    rng: Random
    folder: Path
    ended: list[Ended] = field(default_factory=list)  # its processes, in order
    notes: list[str] = field(default_factory=list)  # what was done
    culprits: list[str] = field(default_factory=list)  # one of them must be named by an error
    problems: list[str] = field(default_factory=list)  # what a fault itself found to be wrong
    twins: list[Path] = field(default_factory=list)  # runs with the loss of the fault: the result may be one of theirs
    settings: tuple[str, ...] = ()  # besides those of the scenario
    disturb: Callable[[Any], None] = lambda grid: None  # called with the grid of a run, in its process
    earned: int = 0  # rounds that the last resume may not do again
    started: int = 0  # processes

    @property
    def config(self) -> list[str]:
        """What the run is, as k=v."""
        return [*BASE, *self.scenario.settings, *self.settings]

    @property
    def run(self) -> Path:
        return self.folder / RUN

    @property
    def cache(self) -> Path:
        return self.folder / CACHE

    def own_cache(self) -> Path:
        """Gives the trial a copy of the campaign's cache instead of the cache itself."""
        if not self.cache.exists():
            shutil.copytree(self.level.cache, self.cache)
        return self.cache

    def start(self, prepare: Prepare = lambda: None) -> "Process":
        """Starts the run, or goes on with it. `prepare` is called first in its process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.started += 1
        return self.level.start(self, prepare)

    def complete(self, prepare: Prepare = lambda: None) -> Ended:
        """Starts the run, or goes on with it, and waits until it ends."""
        return self.wait(self.start(prepare))

    def finish(self, prepare: Prepare = lambda: None) -> None:
        """Lets the run go on, as a user does after a crash, unless it has finished."""
        if not is_finished(self.run):
            self.complete(prepare)
        else:
            self.ended.append(Ended(0, "", 0.0, 0.0))

    def wait(self, process: "Process") -> Ended:
        self.ended.append(process.wait(self.level.patience))
        return self.ended[-1]


class Process(Protocol):
    """A process of a run."""

    pid: int

    def wait(self, patience: float) -> Ended:
        """Waits until it ends, at most so many seconds: then it is killed."""

    def ended(self, within: float = 0.0) -> bool:
        """Waits until it ends, at most so many seconds; returns whether it has."""

    def send(self, number: int) -> None:
        """Sends it a signal."""


class Level(ABC):
    """Where runs happen."""

    name: ClassVar[str]
    share: ClassVar[int]  # of the faults of a campaign of several levels
    patience: ClassVar[float]  # seconds that one process may take
    scenarios: ClassVar[Sequence[Scenario]]
    faults: ClassVar[Sequence[type[Fault]]]

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / self.name, folder / CACHE

    @abstractmethod
    def start(self, trial: Trial, prepare: Prepare) -> Process:
        """Starts the run of a trial, or goes on with it."""

    @abstractmethod
    def twin(self, scenario: Scenario) -> Path:
        """The folder of the undisturbed run of a scenario."""

    def events(self, trial: Trial) -> Path:
        """Where the run of a trial writes its events."""
        return trial.run / EVENTS

    def weights(self, run: Path) -> str:
        """A fingerprint of everything that was learned in a run that is finished."""
        return str(read_summary(run)["weights_sha256"])

    def same_weights(self, run: Path, other: Path) -> bool:
        """Whether two runs that are finished have learned the same."""
        return self.weights(run) == self.weights(other)

    def same_model(self, run: Path, other: Path) -> bool:
        """Whether the server has the same models, whatever clients keep themselves."""
        return bool(read_summary(run)["weights_sha256"] == read_summary(other)["weights_sha256"])

    def leftovers(self) -> list[str]:
        """What is there between two trials and should not be."""
        return []

    def close(self) -> None:  # noqa: B027
        """Ends what the level keeps running between trials."""
