"""SPFL: personalized federated learning with gradient similarity ("Personalized Heterogeneous Federated Learning with
Gradient Similarity", equations (1) to (7)).

Objective (1):       min over w_1 ... w_N of sum_i (n_i / n) F_i(w_i)
Reset:               every Gamma rounds w_i <- w_g = (1/N) sum_j w_j
Probe:               g_i = w_g - ClientUpdate(w_g; D_i)
Similarity (3):      S_s(i,j) = cos(g_{s,i}, g_{s,j}) for every stage s of the model
SNGS (5)(6):         St_s(i,j) = exp S_s(i,j) / sum_l exp S_s(i,l)
Training:            g_i = w_i - ClientUpdate(w_i; D_i), in every round
Aggregation (4)(7):  w_{s,i} <- w_{s,i} - eta * sum_j omega_s(i,j) g_{s,j}
                     normalized: omega_s(i,j) = n_j St_s(i,j) / sum_l n_l St_s(i,l)
                     literal:    omega_s(i,j) = (n_j / n) St_s(i,j), as printed
ClientUpdate:        E epochs of SGD with two steps on each mini-batch (the paper's "2 beta"); variant (1-s): one
Fine-tuning:         after the last round, k mini-batch steps on w_i, evaluated as the final personal model (Table 8)

| symbol  | meaning                                       | name here                                               |
| ------- | --------------------------------------------- | ------------------------------------------------------- |
| w_i     | personal model of client i                    | `State.models[row]`                                     |
| w_g     | their mean at a reset                         | `State.mean`                                            |
| g_i     | descent of client i, in training and probe    | -`uplink.weights["delta"]`, -`uplink.weights["probe"]`  |
| S_s     | similarity matrix of stage s                  | `State.similarity[stage]`                               |
| Gamma   | rounds between two resets                     | `Params.gamma`                                          |
| eta     | server step                                   | `Params.server_lr`                                      |

In a round with a reset, the personal model before the reset is evaluated. Probe and training of such a round both
start at w_g, so one job returns both, trained with independent orders of the mini-batches (faithful); `cheap` uses the
training update as the probe. w_g is the same for all clients: its metrics are recorded as those of the global model,
in those rounds.

Deviations. The printed step alpha = 0.01 with the factor n_j / n hardly moves a model; rows that sum to 1 with eta = 1
can have produced the published numbers. `head_mode = identity` trains the last stage locally between two resets, which
fits the published Table 1; `softmax` (the equations) fits Tables 7 and 8. `layer-mean` is the weighted mean of the
cosines of a stage's weight tensors, without biases. When only some results arrive, rows and columns are restricted to
them. Probes are compared with probes of the same reset; cosines of clients that were not probed together stay as they
were, and are 0 at first. A result that arrives after a reset is added to the model after it. Buffers stay with their
client and are averaged at a reset. A client that never took part receives the mean of all personal models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.errors import FedsimError
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.similarity import cosines, gram
from fedsim.weights import Vec, Weights, mix, weighted_mean

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Params:
    gamma: PositiveInt = 10  # Gamma, rounds between two resets
    head_mode: Literal["softmax", "identity"] = "softmax"  # identity: the last stage learns alone
    stage_similarity: Literal["concat", "layer-mean"] = "concat"  # of all its entries, or a mean
    layer_weights: tuple[float, ...] = (0.5, 0.3, 0.2)  # of layer-mean; other stages: equal weights
    weighting: Literal["normalized", "literal"] = "normalized"  # normalized: sums are 1; literal: as printed
    server_lr: PositiveFloat = 1.0  # eta, server step
    steps_per_batch: PositiveInt = 2  # steps on each mini-batch; the paper: 2
    probe: Literal["faithful", "cheap"] = "faithful"  # cheap: the round's update is the probe
    finetune_steps: NonNegativeInt = 0  # k, mini-batch steps after the last round
    finetune_lr: PositiveFloat = 0.001  # learning rate of these steps
    finetune_batch: NonNegativeInt = 0  # their batch size; 0: the run's, which is also the largest
    record_layers: bool = False  # also record the probes' similarity by layer (Figures 4, 5)


@dataclass
class State:
    models: ClientTable
    buffers: Vec  # clients x buffers
    mean: Vec  # of the models, as of the last or the coming reset
    similarity: dict[str, Matrix]  # per stage, clients x clients
    step: int = 0
    layers: dict[str, Matrix] = field(default_factory=dict)  # with `record_layers`: per layer, likewise


class Spfl(ServerStrategy[Params, State]):
    """Adds to each client's model the updates of all clients, weighted by the similarity of their gradients."""

    no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        count, theta = len(fleet), model.parameters
        similarity = {stage: np.eye(count) for stage in fleet.layout.stages}
        models = client_table(self.config, theta, count)
        recorded = fleet.layout.matrices if self.params.record_layers else ()
        layers = {tensor.layer: np.eye(count) for tensor in recorded}
        return State(models, np.tile(model.buffers, (count, 1)), theta.copy(), similarity, layers=layers)

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        row, resets = self.fleet.row(client), self._resets(state.step)
        own = Weights(state.models[row], state.buffers[row])
        weights = (
            {"model": Weights(state.mean, state.buffers.mean(axis=0)), "personal": own} if resets else {"model": own}
        )
        probe = resets and self.params.probe == "faithful"
        numbers = {"probe": probe, "finetune": state.step >= self.config.rounds}
        return Downlink(weights, numbers=numbers, shared=resets)

    def newcomer(self, state: State, client: int) -> Downlink:
        mean = Weights(weighted_mean(list(state.models), [1] * len(state.models)), state.buffers.mean(axis=0))
        return Downlink({"model": mean}, numbers={"probe": False, "finetune": True})

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        if self._resets(state.step):
            state.models[:] = state.mean
            if state.buffers.size:
                state.buffers[:] = state.buffers.mean(axis=0)
        for reset in sorted({a.step for a in arrivals if self._resets(a.step)}):
            self._compare(state, [a for a in arrivals if a.step == reset])
        targets = sorted({self.fleet.row(a.client) for a in arrivals})
        for stage, parts in self.fleet.layout.stages.items():
            weights = self._weights(state, stage, targets, arrivals)
            self._aggregate(state, targets, weights, arrivals, parts)
        if state.buffers.size:
            for arrival in arrivals:
                state.buffers[self.fleet.row(arrival.client)] = arrival.uplink.weights["delta"].buffers
        state.step += 1
        if self._resets(state.step):
            state.mean = weighted_mean(list(state.models), [1] * len(state.models))
        return state

    def matrices(self, state: State) -> Mapping[str, Matrix]:
        found = {f"similarity-{stage}": matrix for stage, matrix in state.similarity.items()}
        return found | {f"layer-{name}": matrix for name, matrix in state.layers.items()}

    def _aggregate(
        self, state: State, targets: list[int], weights: Matrix, arrivals: Sequence[Arrival], parts: Sequence[slice]
    ) -> None:
        deltas = [a.uplink.weights["delta"].parameters for a in arrivals]
        for block, step in mix(self.params.server_lr * weights, deltas, parts):  # (4), (7)
            state.models[targets, block] += step

    def _compare(self, state: State, probed: Sequence[Arrival]) -> None:
        """(3) between clients whose probes start from the same mean model."""
        rows = [self.fleet.row(a.client) for a in probed]
        probes = [self._probe(a) for a in probed]
        for stage, layers in self._layers.items():
            found = [weight * cosines(gram(probes, parts)) for weight, parts in layers]
            state.similarity[stage][np.ix_(rows, rows)] = np.sum(found, axis=0)
        for tensor in self.fleet.layout.matrices if state.layers else ():
            parts = [self.fleet.layout.slices[tensor.name]]
            state.layers[tensor.layer][np.ix_(rows, rows)] = cosines(gram(probes, parts))

    def _probe(self, arrival: Arrival) -> Vec:
        weights = arrival.uplink.weights
        if self.params.probe == "cheap":
            return weights["delta"].parameters
        if "probe" not in weights:
            raise FedsimError(f"client {arrival.client} was asked for a probe and sent none")
        return weights["probe"].parameters

    def _weights(self, state: State, stage: str, targets: list[int], arrivals: Sequence[Arrival]) -> Matrix:
        """omega_s: a row for each client that is updated, a column for each result."""
        columns = [self.fleet.row(a.client) for a in arrivals]
        if self.params.head_mode == "identity" and stage == list(state.similarity)[-1]:
            sngs = np.equal.outer(targets, columns).astype(np.float64)
        else:
            sngs = np.exp(state.similarity[stage][np.ix_(targets, columns)])
            sngs /= sngs.sum(axis=1, keepdims=True)  # (5), (6)
        sizes = np.array([a.uplink.examples for a in arrivals], np.float64)
        weights = sngs * (sizes / sizes.sum())
        if self.params.weighting == "normalized":
            weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(weights)

    def expects(self) -> Mapping[str, Spec]:
        size = self.fleet.layout.size
        return {**super().expects(), "probe": Spec((size,), role="update", buffers=0, optional=True)}

    def _resets(self, step: int) -> bool:
        return step % self.params.gamma == 0

    @cached_property
    def _layers(self) -> Mapping[str, Sequence[tuple[float, Sequence[slice]]]]:
        """Stage -> the ranges that have a cosine each, with the weights of these cosines in the stage's similarity."""
        layout, params = self.fleet.layout, self.params
        if params.stage_similarity == "concat":
            return {stage: [(1.0, parts)] for stage, parts in layout.stages.items()}
        layers: dict[str, list[tuple[float, Sequence[slice]]]] = {}
        for stage in layout.stages:
            own = [t for t in layout.parameters if t.stage == stage]
            own = [t for t in own if len(t.shape) > 1] or own  # weights, not biases
            fits = len(own) == len(params.layer_weights)
            weights = np.array(params.layer_weights if fits else [1.0] * len(own))
            layers[stage] = [
                (float(w), [layout.slices[t.name]]) for w, t in zip(weights / weights.sum(), own, strict=True)
            ]
        return layers


SPFL = Algorithm(
    name="spfl",
    about="personal models that add similar clients' updates, stage by stage (SPFL)",
    params=Params,
    server=Spfl,
    client="fedsim.clients.spfl:SpflClient",
)
