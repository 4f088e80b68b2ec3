"""What travels between server and clients, and what a client keeps. Plain values; `transport.wire` encodes them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import inf, prod
from secrets import token_hex
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Scalar
from fedsim.layout import Layout, Part
from fedsim.weights import Weights

Array = NDArray[Any]
Metrics = Mapping[str, float]  # by name, as the run's objective defines them: accuracy, loss
TRAINING = "training-"  # begins the name of a metric that is measured on training data
Role = Literal["update", "model", "statistic"]
LARGEST_NUMBER = 1e15  # in any vector: sums and squares of such numbers are still finite in float32
LARGEST_METRIC = 1e30  # what a client tells instead of a larger or infinite loss
# The columns of a result's row in events.jsonl: no metric of a client can have such a name.
RESULT_COLUMNS = ("id", "base", "sent", "arrived", "staleness", "examples", "malicious", "metrics", "cost", "reason")
ROW_COLUMNS = frozenset((*RESULT_COLUMNS, "global", "personal", "local"))


@dataclass(frozen=True)
class RunIdentity:
    """Which run a job belongs to, and which of a client's stored states are part of its history."""

    id: str  # hexadecimal, the same however often the run is stopped and resumed
    resumed: tuple[int, ...] = ()  # the steps from which it was resumed
    saved: tuple[int, ...] = ()  # the steps of the server's checkpoints, from which it may be resumed

    @classmethod
    def new(cls) -> "RunIdentity":
        return cls(token_hex(8))

    def holds(self, step: int, attempt: int) -> bool:
        """Whether a job of `step` counts that was sent when the run had been resumed `attempt` times."""
        return attempt <= len(self.resumed) and all(step < start for start in self.resumed[attempt:])


@dataclass(frozen=True)
class Spec:
    """What an uplink must hold under one name; filters choose by the role what they treat.

    update: a difference to what was received; model: whole weights; statistic: anything computed from the data.
    """

    shape: tuple[int | None, ...] | None = None  # of the array, or of the parameters; None: any, also for one axis
    dtype: str = "float32"
    role: Role = "statistic"
    buffers: int | None = None  # length of the buffers beside the parameters; None: a plain array, not `Weights`
    optional: bool = False
    low: float = -inf  # every value is at least this
    high: float = inf  # and at most this

    @property
    def nbytes(self) -> int:
        """Bytes that every uplink sends for it; 0 if that is not known."""
        if self.optional or self.shape is None:
            return 0
        return prod(n or 0 for n in self.shape) * np.dtype(self.dtype).itemsize + 4 * (self.buffers or 0)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape is expected."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, shape, strict=True))

    @classmethod
    def weights(cls, layout: Layout, role: Role = "update", part: Part | None = None, optional: bool = False) -> "Spec":
        """The weights of a model, or of a part of it."""
        of = layout if part is None else part
        return cls((of.size,), "float32", role, of.buffer_size, optional)


@dataclass(frozen=True)
class Downlink:
    """What one client receives: named weights, arrays and numbers. The weights `model` are where its training starts.

    `weights["personal"]`, if the server makes one, is the model that is evaluated as this client's own.
    """

    weights: Mapping[str, Weights] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    shared: bool = True  # `model` is the global model, the same for everyone: its metrics count as `global`

    @property
    def model(self) -> Weights:
        return self.weights["model"]

    @property
    def nbytes(self) -> int:
        return sum(v.nbytes for values in (self.weights, self.arrays) for v in values.values())


@dataclass(frozen=True)
class Uplink:
    """What one client returns: named weights (`delta` = local - received), arrays and numbers."""

    examples: int  # training samples that made it
    weights: Mapping[str, Weights] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=dict)
    local: "Weights | PersonalModel | None" = None  # the model after training: evaluated on the client, never sent
    averaged: int | None = None  # samples behind `weights` that are a mean over clients; 0: its own are in such a mean
    averaged_bytes: int = 0  # of its own weights, if they are in the mean that another client's uplink holds

    @property
    def nbytes(self) -> int:
        """Bytes that this client sends in a real federation."""
        held = sum(v.nbytes for values in (self.weights, self.arrays) for v in values.values())
        return held + self.averaged_bytes


@dataclass(frozen=True)
class PersonalModel:
    """Weights with another prediction than the network's output, `predict(trainer, inputs) -> output`, or of another
    network than the run's model."""

    weights: Weights
    predict: Callable[[Any, Any], Any] | None = None
    network: str = "model"


@dataclass
class ClientState:
    """What one client keeps between its jobs. It never leaves the client, except into a checkpoint of a simulation."""

    weights: dict[str, Weights] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
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


@dataclass(frozen=True)
class SimulatedDelay:
    """What the straggler model makes of a job, drawn when the job is sent."""

    duration: float = 0.0  # virtual seconds from sending to arrival
    delay: float = 0.0  # the straggler's part of it; on the wall clock the client sleeps it
    absence: float | None = None  # the client drops out: no result arrives, and it is absent for so many seconds


@dataclass(frozen=True)
class Job:
    """One order to one client: train from `down`, or only evaluate it."""

    client: int
    step: int  # the server step whose state `down` comes from
    down: Downlink
    train: bool = True
    test_received: bool = False  # evaluate the received model, if it is the global one
    test_personal: bool = False  # evaluate the model this client would use
    test_local: bool = False  # evaluate the model after local training
    simulated_delay: SimulatedDelay = SimulatedDelay()
    job_index: int = 0  # how many training jobs the client was sent before at this step
    keep: bool = False  # the run is over: a client with a state directory stores its personal model as a file
    newcomer: bool = False  # the client never took part: it trains once for itself before its own model is tested

    def with_down(self, down: Downlink) -> "Job":
        """The same job with another downlink. Thousands are made in a round, for which `replace` takes long."""
        job = object.__new__(Job)
        vars(job).update(vars(self), down=down)
        return job


@dataclass(frozen=True)
class Report:
    """Metrics a client measured while it worked on a job; None: there is no such model, or the job did not ask."""

    received: Metrics | None = None
    personal: Metrics | None = None
    local: Metrics | None = None


@dataclass(frozen=True)
class Answer:
    """A client's reply to a job."""

    job: Job
    uplink: Uplink | None  # None: the job was an evaluation
    report: Report
    cost: Mapping[str, float] = field(default_factory=dict)  # seconds by activity, peaks of memory in MB


@dataclass(frozen=True)
class Failure:
    """A job without a result, and why. `offline`: the node itself is unreachable; `refused`: it answered, but not with what
    can be."""

    job: Job
    reason: str
    offline: bool = False
    refused: bool = False

    @property
    def absence(self) -> float | None:
        """How many seconds the client is absent; None unless it dropped out in the simulation."""
        return self.job.simulated_delay.absence


def arrays_in(value: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """Every array in dataclasses, mappings, lists and tuples, with the way to it."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif is_dataclass(value):
        for own in fields(value):
            yield from arrays_in(getattr(value, own.name), f"{name}.{own.name}".lstrip("."))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from arrays_in(inner, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            if not isinstance(inner, Scalar):
                yield from arrays_in(inner, f"{name}[{place}]")


def told(metrics: Metrics, directions: Mapping[str, str] | None = None) -> dict[str, float]:
    """Metrics as a client tells them: those of a model that has diverged become the largest number that can be told (the
    smallest, where `directions` say that more is better)."""

    def finite(name: str, value: float) -> float:
        if value != value:
            return -LARGEST_METRIC if (directions or {}).get(name) == "max" else LARGEST_METRIC
        return min(max(value, -LARGEST_METRIC), LARGEST_METRIC)

    return {name: finite(name, value) for name, value in metrics.items()}


def with_updates(arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[int]]:
    """The arrivals that hold an update, and the training samples behind each: a simulation may have averaged the updates
    of several clients, by samples, where they were made. One of these clients then holds the mean."""
    held = [arrival for arrival in arrivals if arrival.uplink.averaged != 0]
    uplinks = [arrival.uplink for arrival in held]
    return held, [u.examples if u.averaged is None else u.averaged for u in uplinks]


def server_made_personal(down: Downlink) -> bool:
    """Whether the server itself made the personal model that a client receives: then the model does not depend on the
    client's state, and can be evaluated while the client trains."""
    return "personal" in down.weights
