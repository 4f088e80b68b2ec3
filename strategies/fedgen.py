"""FedGen: data-free distillation through a generator of features (Zhu, Hong, Zhou 2021, arXiv 2105.10056).

Server (1):  G <- steps of Adam on E_{y,e} [ CE( sum_{k in S} a_k(y) psi_k(G(y, e)), y ) ] + D,
             a_k(y) = n_ky / sum_{j in S} n_jy
       (2):  D = exp( -mean_{ij} |e_i - e_j| |G(y_i, e_i) - G(y_j, e_j)| ), |.| the mean absolute value of the entries
Client (3):  w_k <- w_k - eta * grad [ CE + alpha_t CE(psi(G(y', e)), y') + beta_t KL(psi(G(y, e)) || p(x)) ],
             started at w; alpha_t = alpha * decay^t, beta_t = beta * decay^t
Server (4):  w <- w + sum_{k in S} (n_k / n_S) * (w_k - w), as FedAvg

| symbol  | meaning                                                       | name here                          |
| ------- | ------------------------------------------------------------- | ---------------------------------- |
| w, psi  | global model, head of a model                                 | `State.model`                      |
| G       | generator: noise and a label -> features                      | `State.generator`                  |
| e       | noise, uniform on [0, 1)                                      | `Generator.noise`                  |
| y, y'   | label of a sample, label drawn as often as clients hold it    |                                    |
| n_ky    | samples of class y at client k, known from the roll call      | `Fleet.labels`                     |
| t       | round                                                         | `State.step`                       |

The generator is trained after every round on the heads that arrived, so the first round is FedAvg; labels that none of
their clients holds are not drawn. Its Adam goes on from round to round. Its BatchNorm uses statistics of the mini-batch
on the server and running ones at the clients. The teacher of KL gets no gradient. A job receives w, the generator and
the label counts; evaluations receive w alone. alpha = beta = 0 is FedAvg, bit for bit, without a generator. The global
model is everyone's. The server needs torch. (1) weighs outputs, as the paper does; the authors' code weighs losses.
Deviation: the terms of (3) act in all local steps, not only in the first 20 epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsim import registry
from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt
from fedsim.payload import Array, Arrival, Downlink
from fedsim.rng import stream
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Vec, Weights, no_buffers

GENERATOR = "fedsim.clients.generator"  # the module that needs torch, loaded when a run starts


@dataclass(frozen=True)
class Params:
    alpha: NonNegativeFloat = 10.0  # weight of generated features with their labels
    beta: NonNegativeFloat = 10.0  # weight of the distance to what the head says of generated features
    decay: PositiveFraction = 0.98  # of alpha and beta, per round
    noise: PositiveInt = 32  # entries of the generator's noise
    hidden: PositiveInt = 256  # hidden units of the generator
    steps: PositiveInt = 50  # of the generator's training per round
    batch: PositiveInt = 32  # generated features per step
    lr: PositiveFloat = 3e-4  # learning rate of the generator's Adam
    weight_decay: NonNegativeFloat = 1e-2  # of the generator's Adam


@dataclass
class TrainedGenerator:
    weights: Weights
    first: Vec  # Adam's moments
    second: Vec
    steps: int = 0  # of its training so far


def no_generator() -> TrainedGenerator:
    return TrainedGenerator(Weights(no_buffers()), no_buffers(), no_buffers())


@dataclass
class State(GlobalState):
    generator: TrainedGenerator = field(default_factory=no_generator)  # empty with alpha = beta = 0


class FedGen(FedAvg):
    """(4), then (1)."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        state = State(**vars(super().init(model, fleet)))
        if self._generates:
            seed = int(stream(self.config.seed, "generator").integers(2**63))
            weights = registry.load(f"{GENERATOR}:initial_generator")(self._sizes(), seed)
            state.generator = TrainedGenerator(weights, *(np.zeros_like(weights.parameters) for _ in range(2)))
        return state

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        assert isinstance(state, State)
        if not (train and self._generates and state.step):
            return Downlink({"model": state.model})
        decay = self.params.decay**state.step
        numbers = {"alpha": self.params.alpha * decay, "beta": self.params.beta * decay}
        weights = {"model": state.model, "generator": state.generator.weights}
        return Downlink(weights, {"labels": self.fleet.labels.sum(axis=0)}, numbers)

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        generator = self._trained(state, arrivals) if self._generates else state.generator
        return State(**vars(super().update(state, arrivals)), generator=generator)

    def _trained(self, state: State, arrivals: Sequence[Arrival]) -> TrainedGenerator:
        import torch

        torch.set_num_threads(self.config.threads)  # as on clients: the result must not depend on the engine
        p, now, rng = self.params, state.generator, stream(self.config.seed, "train-generator", state.step)
        counts = self.fleet.labels[[self.fleet.row(a.client) for a in arrivals]]
        ensemble = registry.load(f"{GENERATOR}:Ensemble")(*self._heads(state, arrivals), counts)
        train = registry.load(f"{GENERATOR}:train_generator")
        start = (now.weights, now.first, now.second, now.steps)
        return TrainedGenerator(*train(self._sizes(), start, ensemble, p.steps, p.batch, (p.lr, p.weight_decay), rng))

    def _heads(self, state: State, arrivals: Sequence[Arrival]) -> tuple[Array, Array]:
        """The arrivals' heads: matrices and biases."""
        head, (classes, features) = self.fleet.layout.part("head").parameters, self._shape()
        models = [self.base(state, a)[head] + a.uplink.weights["delta"].parameters[head] for a in arrivals]
        stacked = np.stack(models)
        return stacked[:, : classes * features].reshape(-1, classes, features), stacked[:, classes * features :]

    @property
    def _generates(self) -> bool:
        return bool(self.params.alpha or self.params.beta)

    def _shape(self) -> tuple[int, int]:
        return self.fleet.classes, self.fleet.layout.features

    def _sizes(self) -> object:
        classes, features = self._shape()
        return registry.load(f"{GENERATOR}:Sizes")(self.params.noise, classes, self.params.hidden, features)


FEDGEN = Algorithm(
    name="fedgen",
    about="a generator of features, trained on the server, teaches all clients (Zhu et al. 2021)",
    params=Params,
    server=FedGen,
    client="fedsim.clients.fedgen:FedGenClient",
    server_needs=("torch",),
    label_counts=True,
    targets="labels",
)
