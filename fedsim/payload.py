"""What travels between server and clients, and what a client keeps. Plain values; `wire` turns them into Flower records."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import NamedTuple

from fedsim.config import Scalar
from fedsim.vector import Vec


class Model(NamedTuple):
    """A model together with the buffers (BatchNorm statistics) that belong to it; None: those of the common start."""

    vector: Vec
    buffers: Vec | None


@dataclass(frozen=True)
class Run:
    """Which run a job belongs to, and which of a client's lasting memories are part of its history."""

    id: str  # hexadecimal, the same however often the run is stopped and resumed
    resumed: tuple[int, ...] = ()  # the steps from which it went on
    saved: int = 0  # the step of the server's last checkpoint, from which it may have to go on

    @classmethod
    def new(cls) -> "Run":
        return cls(token_hex(8))

    def holds(self, step: int, attempt: int) -> bool:
        """Whether a job of `step` counts that was sent when the run had been resumed `attempt` times."""
        return attempt <= len(self.resumed) and all(step < start for start in self.resumed[attempt:])


@dataclass(frozen=True)
class Downlink:
    """What one client receives: named vectors and numbers. `model` is where its training starts."""

    vectors: Mapping[str, Vec] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    shared: bool = True  # `model` is the global model, the same for everyone: its test accuracy counts as `global`


@dataclass(frozen=True)
class Uplink:
    """What one client returns: named vectors (`delta` = local - received), numbers, and how many examples made them."""

    vectors: Mapping[str, Vec]
    examples: int
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    local: Vec | Model | None = None  # the model after training: tested (alone: with the `buffers` sent), never sent


@dataclass
class Memory:
    """What one client keeps between its jobs. It never leaves the client except into a checkpoint of a simulation."""

    vectors: dict[str, Vec] = field(default_factory=dict)
    numbers: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrival:
    """One client's result as the server sees it."""

    client: int
    step: int  # the server step whose model the client started from
    uplink: Uplink
    sent: float
    arrived: float
    staleness: int = 0  # server steps since then
    cost: Mapping[str, float] = field(default_factory=dict)

    def aged(self, step: int) -> "Arrival":
        return replace(self, staleness=step - self.step)


@dataclass(frozen=True)
class Fate:
    """What happens to a job, drawn when it is sent."""

    duration: float = 0.0  # virtual seconds from dispatch to arrival
    delay: float = 0.0  # the straggler's part of it; on the wall clock it is slept
    away: float | None = None  # the client drops out: nothing arrives, and it stays away for so many seconds


@dataclass(frozen=True)
class Job:
    """One order to one client: train from `down`, or only evaluate it."""

    client: int
    step: int  # the server step whose state `down` comes from
    down: Downlink
    train: bool = True
    test_received: bool = False  # measure the received model, if it is the global one
    test_personal: bool = False  # measure the model this client would use
    test_local: bool = False  # measure the model after local training
    fate: Fate = Fate()
    turn: int = 0  # how many training jobs the client got before at this step
    keep: bool = False  # the run is over: a client with a disk of its own keeps its personal model as a file


@dataclass(frozen=True)
class Report:
    """Test accuracies a client measured while it worked on a job; None: there is no such model, or nobody asked."""

    received: float | None = None
    personal: float | None = None
    local: float | None = None


@dataclass(frozen=True)
class Answer:
    """A client's reply to a job."""

    job: Job
    uplink: Uplink | None  # None: the job was an evaluation
    report: Report
    cost: Mapping[str, float] = field(default_factory=dict)  # seconds by what they went into, peaks of memory in MB


@dataclass(frozen=True)
class Failure:
    """A job that brought nothing, and why. `offline`: the node itself is gone."""

    job: Job
    reason: str
    offline: bool = False

    @property
    def away(self) -> float | None:
        """How long the client stays away, if it is known to come back."""
        return self.job.fate.away
