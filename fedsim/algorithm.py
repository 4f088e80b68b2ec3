"""The contract of an algorithm: a server half, a client half, and their parameters.

A new algorithm is one `Algorithm` value under a name. Its server half says what each client receives (`instruct`) and how
arrivals change the state (`update`); its client half, only if it differs from plain local SGD, says how to train and which
model to evaluate. Neither half knows which pace, clock or engine runs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsim import registry
from fedsim.aggregators import Aggregator, PublicAggregator, aggregator_of
from fedsim.config import FineTuning, RunConfig
from fedsim.layout import Layout, Part
from fedsim.payload import Array, Arrival, ClientState, Downlink, Metrics, PersonalModel, Spec, Uplink
from fedsim.server.fleet import Fleet
from fedsim.server_optimizers import Moments, ServerOptimizer, server_optimizer_of
from fedsim.weights import Vec, Weights, weighted_mean

P = TypeVar("P")
S = TypeVar("S")
Dataset = Literal["train", "test", "validation", "public", "attack"]
Statistic = Literal["features", "directions", "probabilities"]


@dataclass(frozen=True)
class Fit:
    """The outcome of local training."""

    weights: Weights
    loss: float  # mean over the mini-batches
    steps: int


@dataclass(frozen=True)
class ClassStatistics:
    """Per class of the client's training data; a class it lacks has count 0 and zeros."""

    counts: Array  # C
    means: Array  # C x K: of the features, of their directions or of the predicted probabilities
    squares: Array  # C: mean squared length


class Task(Protocol):
    """A client's data, networks and the one training loop, as its half of the algorithm sees them."""

    layout: Layout  # of the network `model`
    config: RunConfig
    lr: float  # the learning rate of this job, by the run's schedule
    examples: int  # training samples
    labels: Array  # training samples per class
    batches_read: int  # mini-batches read so far, where batches in order continue

    def network(self, name: str) -> Any:
        """A network by name, with its `layout` and `initial` weights: see `initial`."""

    def initial(self, network: str = "model") -> Weights:
        """The initial weights of the client's model, of another network of the algorithm, or of a registered model: those
        of one architecture are the same on all clients."""

    def fit(
        self,
        start: Weights,
        rng: np.random.Generator,
        *,
        train: Part | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        loss: Any = None,
        gradient: Any = None,
        step: Any = None,
        samples: Any = None,
        batch_size: int | None = None,
        lr: float | None = None,
    ) -> Fit:
        """Local training from `start`: as long as the run says, or so many epochs or steps.

        `train`: the only part that is optimized. `loss(trainer, batch)`, `gradient(parameters)` and
        `step(trainer, batch)` replace the loss, change the gradients, or replace the whole step on one mini-batch
        (see `fedsim.clients.training`). `samples`, `batch_size`, `lr`: instead of the client's training data and of
        what the run says; a fit on other samples does not count as read batches.
        """

    def samples(self, name: Dataset) -> Any:
        """The `Samples` of this name; `with_targets` gives them other targets. Raises ConfigError if there are none."""

    def outputs(self, weights: Weights, on: Dataset = "test") -> Array:
        """The network's outputs (logits) for all samples, in their order, in evaluation mode."""

    def companion(self, start: Weights, network: str = "model", train: Part | None = None) -> Any:
        """A second network with an optimizer of its own, to be trained inside a `step` of `fit`: a `Trainer`."""

    def evaluate(
        self, weights: Weights, on: Dataset = "test", predict: Any = None, network: str = "model"
    ) -> Metrics | None:
        """The objective's metrics on the client's own data; None without such samples."""

    def by_class(self, weights: Weights, of: Statistic = "features") -> ClassStatistics:
        """Counts, means and mean squares per class over the training data, in evaluation mode; `directions` are
        features of length 1."""

    def losses(self, models: Sequence[Weights], on: Dataset = "train") -> list[float]:
        """The mean loss of each of several models, in evaluation mode, from one pass over the data: every batch is read
        once."""

    def held_out(
        self, share: float, rng: np.random.Generator | None = None
    ) -> tuple["Task", Callable[[Weights], float]]:
        """A task without a share of the training samples, and the mean loss of a model on those samples.

        They are the same in every job of the client, or those that `rng` draws; never test samples.
        """

    def peak_memory(self) -> dict[str, float]:
        """Peaks of `memory`, and of `gpu-memory` where there is one, in MB since the last call."""


class ClientBehaviour(ABC, Generic[P]):
    """The client half. An instance holds parameters only; what must outlast a job belongs into `state`."""

    def __init__(self, params: P) -> None:
        self.params = params

    @abstractmethod
    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        """Works on the received message; the result goes to the server. May change `state`."""

    def personalize(
        self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator
    ) -> Weights | PersonalModel:
        """The model this client would use now, which is evaluated as `personal`. Must not change `state`."""
        return down.weights["personal" if "personal" in down.weights else "model"]

    def global_model(self, task: Task, down: Downlink) -> Weights | None:
        """The global model of a shared downlink: it is evaluated as `global`, and a run with `finetune` tunes it."""
        return down.weights.get("model")


class ServerStrategy(ABC, Generic[P, S]):
    """The server half. `fedsim.flower.strategy.FlowerStrategy` makes a Flower Strategy of it."""

    averages: ClassVar[bool] = False  # whether `aggregate` makes its global model, so that `aggregator` may replace it
    # Whether it averages updates of the run's whole model, with `aggregate_updates`: an aggregator may compare them with the
    # server's own update on public data.
    averages_model: ClassVar[bool] = False
    optimizes: ClassVar[bool] = False  # whether `stepped` moves it, so that `server-optimizer` may replace the step
    no_finetune: ClassVar[str] = "it has no global model"  # why `finetune` is refused; empty: it is not
    # why `partition.unseen` is refused; empty: it is not, and `newcomer` tells what such a client receives
    no_newcomers: ClassVar[str] = "it does not say what a client receives that never took part"

    def __init__(self, params: P, config: RunConfig) -> None:
        self.params, self.config = params, config
        self._fleet: Fleet | None = None

    @property
    def fleet(self) -> Fleet:
        """Every client and the model's layout; known once the roll call is done."""
        if self._fleet is None:
            raise RuntimeError("the strategy has no fleet before the roll call")
        return self._fleet

    def attach(self, fleet: Fleet) -> None:
        """Called once, after the roll call and before `init`."""
        self._fleet = fleet

    @abstractmethod
    def init(self, model: Weights, fleet: Fleet) -> S:
        """The state before the first step: one dataclass of arrays, weights and numbers, so that it can be saved."""

    @abstractmethod
    def instruct(self, state: S, client: int, train: bool) -> Downlink:
        """What this client receives, to train or, with train=False, only to evaluate."""

    def newcomer(self, state: S, client: int) -> Downlink:
        """What a client receives at the end that never took part (`partition.unseen`). It has no row in the fleet."""
        return self.instruct(state, client, train=True)

    @abstractmethod
    def update(self, state: S, arrivals: Sequence[Arrival]) -> S:
        """The server equation. May write its own arrays in place; must not keep the arrivals' arrays."""

    @property
    def takes_means(self) -> bool:
        """Whether `update` needs no single update but their mean by samples, so that a simulation may average groups of
        clients where they were trained (see `payload.with_updates`)."""
        return False

    def global_model(self, state: S) -> Weights | None:
        """The one model for everyone, if the algorithm has one."""
        return None

    def matrices(self, state: S) -> Mapping[str, NDArray[Any]]:
        """Matrices between clients (similarities, mixing weights), each clients x clients by its name; stored in the run
        folder whenever they change."""
        return {}

    def clusters(self, state: S) -> NDArray[np.int64] | None:
        """The cluster of each client, by its row; -1: not known yet. None: the algorithm has no clusters. Recorded whenever
        it changes."""
        return None

    def result_metrics(self, state: S) -> Sequence[Metrics]:
        """What the server measured of every result of the last update, in their order, by names that clients do not use;
        recorded beside the clients' own metrics. Empty: nothing."""
        return ()

    def expects(self) -> Mapping[str, Spec]:
        """What an uplink must hold, by name; an uplink that does not fit is refused as that client's failure."""
        return {"delta": Spec.weights(self.fleet.layout)}

    def aggregate(self, vectors: Sequence[Vec], weights: Sequence[float], scales: Sequence[float] | None = None) -> Vec:
        """The run's aggregator (`aggregator=mean`) over scales[k] * vectors[k] with weights[k]."""
        return self._aggregator(vectors, weights, scales)

    @property
    def public_test(self) -> Callable[[Weights], Metrics]:
        """Measures a model on the public data, on the server: `self.public_test(weights)` is a mapping with the
        objective's metrics (`loss`, `accuracy`) and the mean `entropy` of the predictions, in nats.

        For algorithms that declare `public=("server",)` and `server_needs=("torch",)`.
        """
        test: Callable[[Weights], Metrics] = self._public_task.test
        return test

    def public_update(self, start: Weights, step: int) -> Weights:
        """The update of local training on the public data, on the server, as long as that of a client's job of `step`. Its
        buffers are a difference as well."""
        update: Weights = self._public_task.update(start, step)
        return update

    @cached_property
    def _public_task(self) -> Any:
        return registry.load("fedsim.clients.public_task:PublicTask")(self.config, self.fleet.classes)

    @cached_property
    def _aggregator(self) -> Aggregator:
        return aggregator_of(self.config)


@dataclass
class GlobalState:
    """The state of every algorithm whose server keeps one global model."""

    model: Weights
    step: int = 0
    history: dict[int, Vec] = field(default_factory=dict)  # parameters of earlier models that clients still train from
    moments: Moments = field(default_factory=dict, kw_only=True)  # of the server optimizer
    # the server's own update on public data, by the step it was made in, for aggregators that compare others with it
    public_updates: dict[int, Weights] = field(default_factory=dict, kw_only=True)


class GlobalStrategy(ServerStrategy[P, GlobalState]):
    """Base of the algorithms with one global model that everyone receives."""

    no_finetune = no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        return GlobalState(model.copy())

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"model": state.model})

    def global_model(self, state: GlobalState) -> Weights | None:
        return state.model

    def base(self, state: GlobalState, arrival: Arrival) -> Vec:
        """The parameters of the global model this client started from."""
        return state.model.parameters if arrival.step == state.step else state.history[arrival.step]

    @cached_property
    def server_optimizer(self) -> ServerOptimizer:
        """The run's; a class that moves its model with `stepped` sets `optimizes`."""
        return server_optimizer_of(self.config)

    def stepped(self, state: GlobalState, mean: Vec) -> Vec:
        """The parameters of the global model after a step of the server optimizer along the clients' mean update."""
        return self.server_optimizer(state.model.parameters, mean, state.moments, state.step + 1)

    def aggregate_updates(
        self,
        state: GlobalState,
        updates: Sequence[Vec],
        weights: Sequence[float],
        scales: Sequence[float] | None = None,
        of: Literal["parameters", "buffers"] = "parameters",
    ) -> Vec:
        """`aggregate` for updates of the global model, or changes of its buffers; a class that averages its whole model so
        sets `averages_model`."""
        aggregator = self._aggregator
        if not isinstance(aggregator, PublicAggregator):
            return self.aggregate(updates, weights, scales)
        if not any(state.step < made + aggregator.every for made in state.public_updates):
            state.public_updates = {state.step: self.public_update(state.model, state.step)}
        (reference,) = state.public_updates.values()
        return aggregator.compared(updates, weights, scales, getattr(reference, of))

    def mean_buffers(self, state: GlobalState, arrivals: Sequence[Arrival], weights: Sequence[float]) -> Vec:
        """The weighted mean of the arrivals' buffers: statistics are averaged, not stepped. Other aggregators than the mean
        combine their changes."""
        before = state.model.buffers
        found = [a.uplink.weights["delta"].buffers for a in arrivals]
        if not before.size or self.config.aggregator == "mean":
            return weighted_mean(found, weights) if before.size else before
        return before + self.aggregate_updates(state, [after - before for after in found], weights, of="buffers")

    def advance(self, state: GlobalState, model: Weights) -> GlobalState:
        """`model` is the next global model; the present one is kept as long as a client trains from it."""
        bases = set(self.fleet.busy.values())
        known = {**state.history, state.step: state.model.parameters}
        history = {s: v for s, v in known.items() if s in bases}
        return GlobalState(model, state.step + 1, history, moments=state.moments, public_updates=state.public_updates)


def no_fine_tuning(params: Any) -> FineTuning:
    return FineTuning()


def one_draw(params: Any) -> int:
    return 1


@dataclass(frozen=True)
class Algorithm(Generic[P]):
    """An algorithm under a name: what `fedsim.algorithms` entry points provide."""

    name: str
    about: str  # one line for `fedsim list`
    params: type[P]  # frozen dataclass, defaults from the paper, constraints in its types; NoParams if there are none
    server: type[ServerStrategy[P, Any]]
    # "module:class", loaded on the clients only; or the class itself, which notebooks and scripts may pass to `fedsim.run`
    client: str | type[ClientBehaviour[P]] = "fedsim.clients.local_sgd:LocalSGD"
    pace: str = "synchronous"
    server_optimizer: str = "sgd"
    finetune: Callable[[P], FineTuning] = no_fine_tuning  # what its parameters say about fine-tuning
    # Further networks: name -> "module:factory", or "params.FIELD": the registered model that this parameter names, empty:
    # the client's model
    networks: Mapping[str, str] = field(default_factory=dict)
    # The network that all clients have in common: `Fleet.layout` and `Fleet.initial` are its own. Unless it is "model",
    # clients may have models of different architectures. None: nothing that travels depends on a network.
    common: str | None = "model"
    public: tuple[Literal["clients", "server"], ...] = ()  # who uses the public data: the run must set public=N
    # How many independent draws of the initial model the server gets; those after the first are `Fleet.draws`.
    draws: Callable[[P], int] = one_draw
    # "module:function", what every client tells of its data before the first round: (ClientData, params) -> arrays by
    # name, which the server finds in `Client.statistics`
    statistics: str = ""
    # The server learns how many samples of each class a client has, from the roll call (`Client.labels`) or from uplinks
    label_counts: bool = False
    # What targets it can learn: any; "classes": whole numbers, also several per sample; "labels": one class per sample
    targets: Literal["any", "classes", "labels"] = "any"
    server_needs: tuple[str, ...] = ()  # packages that the server half imports, such as torch
    vectorizes: bool = False  # the client half is local SGD with a gradient hook at most, see `LocalSGD.vectorizes`
