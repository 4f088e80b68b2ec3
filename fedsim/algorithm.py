"""The contract of an algorithm: a server half, a client half, and their parameters.

A new algorithm is one `Algorithm` value under a name. Its server half says what each client receives (`instruct`) and how
arrivals change the state (`update`); its client half, only if it differs from plain local SGD, says how to train and which
model to evaluate. Neither half knows which pace, clock or engine runs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsim.config import RunConfig
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink, Memory, Model, Uplink
from fedsim.stock import FlowerHooks
from fedsim.vector import Layout, Vec

P = TypeVar("P")
S = TypeVar("S")


@dataclass(frozen=True)
class Fit:
    """The outcome of local training."""

    model: Vec
    buffers: Vec
    loss: float  # mean over the mini-batches
    steps: int

    @property
    def whole(self) -> Model:
        return Model(self.model, self.buffers)


class Task(Protocol):
    """A client's world as its half of the algorithm sees it: its data, its model, and the one training loop."""

    layout: Layout
    config: RunConfig
    examples: int  # training samples
    read: int  # mini-batches read so far, where batches in order go on

    def initial(self) -> Vec:
        """The common initial model of the run."""

    def initial_buffers(self) -> Vec:
        """The buffers that belong to it."""

    def fit(
        self,
        start: Vec,
        rng: np.random.Generator,
        *,
        buffers: Vec | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        lesson: Any = None,
    ) -> Fit:
        """Local SGD from `start`: as long as the run says, or so many epochs or steps; `lesson` (see clients.local_sgd)
        says what is done with each mini-batch."""

    def accuracy(self, model: Vec, buffers: Vec | None = None) -> float | None:
        """Share of the client's own test samples this model gets right; None without test samples."""

    def memory(self) -> dict[str, float]:
        """Peaks of `memory`, and of `gpu-memory` where there is one, in MB since it was last asked."""


class ClientBehaviour(ABC, Generic[P]):
    """The client half. An instance holds parameters only; what must last belongs into `memory`."""

    def __init__(self, params: P) -> None:
        self.params = params

    @abstractmethod
    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        """Work on the received message; what is returned goes to the server."""

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec | Model:
        """The model this client would use now, which is evaluated as `personal`: with its own buffers, or alone, with the
        received ones. Must not change `memory`."""
        return down.vectors["personal"] if "personal" in down.vectors else down.vectors["model"]


@dataclass
class GlobalState:
    """The state of every algorithm whose server keeps one global model."""

    theta: Vec
    buffers: Vec  # BatchNorm statistics and the like; averaged, never optimised
    step: int = 0
    history: dict[int, Vec] = field(default_factory=dict)  # earlier models that somebody is still working on


class ServerStrategy(FlowerHooks, Generic[P, S]):
    """The server half, and a Flower Strategy: `start` runs fedsim's loop, Flower's own hooks go through the same methods."""

    def __init__(self, params: P, config: RunConfig) -> None:
        super().__init__(config)
        self.params = params

    @abstractmethod
    def init(self, theta: Vec, fleet: Fleet) -> S:
        """The state before the first step: one dataclass of arrays and numbers, so that it can be checkpointed."""

    @abstractmethod
    def instruct(self, state: S, client: int) -> Downlink:
        """What this client receives."""

    @abstractmethod
    def update(self, state: S, arrivals: Sequence[Arrival]) -> S:
        """The server equation. May write its own arrays in place; must not keep the arrivals' arrays."""

    def global_model(self, state: S) -> Vec | None:
        """The one model for everyone, if the algorithm has such a thing."""
        return None

    def matrices(self, state: S) -> Mapping[str, NDArray[Any]]:
        """What relates the clients to each other now (similarities, mixing weights), each clients x clients by its name;
        kept in the run folder whenever it changes."""
        return {}

    def expects(self) -> Mapping[str, int]:
        """Name and length of every vector an uplink must hold; what does not fit is refused as that client's failure."""
        layout = self.fleet.layout
        return {"delta": layout.size} | ({"buffers": layout.buffer_size} if layout.buffers else {})


class GlobalStrategy(ServerStrategy[P, GlobalState]):
    """Base of the algorithms with one global model that everyone receives."""

    def init(self, theta: Vec, fleet: Fleet) -> GlobalState:
        return GlobalState(theta.copy(), fleet.buffers.copy())

    def instruct(self, state: GlobalState, client: int) -> Downlink:
        buffers = {"buffers": state.buffers} if state.buffers.size else {}
        return Downlink({"model": state.theta, **buffers})

    def global_model(self, state: GlobalState) -> Vec | None:
        return state.theta

    def base(self, state: GlobalState, arrival: Arrival) -> Vec:
        """The global model this client started from."""
        return state.theta if arrival.step == state.step else state.history[arrival.step]

    def advance(self, state: GlobalState, theta: Vec) -> GlobalState:
        """`theta` is the next global model; the present one is kept for as long as a client works on it."""
        bases = set(self.fleet.busy.values())
        known = {**state.history, state.step: state.theta}
        return GlobalState(theta, state.buffers, state.step + 1, {s: v for s, v in known.items() if s in bases})


@dataclass(frozen=True)
class Algorithm(Generic[P]):
    """An algorithm under a name: what `fedsim.algorithms` entry points provide."""

    name: str
    about: str  # one line for `fedsim list`
    params: type[P]  # frozen dataclass, defaults from the paper, validated in __post_init__; NoParams if there are none
    server: type[ServerStrategy[P, Any]]
    client: str = "clients.local_sgd:LocalSGD"  # "module:class", loaded on the clients only
    pace: str = "synchronous"
