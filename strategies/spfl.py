"""SPFL: personalized federated learning with gradient similarity ("Personalized Heterogeneous Federated Learning with
Gradient Similarity", equations (1) to (7)).

Objective (1):       min over w_1 ... w_N of sum_i (n_i / n) F_i(w_i)
Reset:               every Gamma rounds w_i <- w_g = (1/N) sum_j w_j
Probe:               g_i = w_g - ClientUpdate(w_g; D_i)
Similarity (2)(5):   S_s(i,j) = cos(g_{s,i}, g_{s,j}) for every stage s of the model; (2) is one stage, (5) several
SNGS (3)(6):         St_s(i,j) = exp S_s(i,j) / sum_l exp S_s(i,l)
Training:            g_i = w_i - ClientUpdate(w_i; D_i), in every round
Aggregation (4)(7):  w_{s,i} <- w_{s,i} - eta * sum_j omega_s(i,j) g_{s,j}
                     normalized: omega_s(i,j) = n_j St_s(i,j) / sum_l n_l St_s(i,l)
                     literal:    omega_s(i,j) = (n_j / n) St_s(i,j), as printed
ClientUpdate:        E epochs of SGD with two steps on each mini-batch (the paper's "2 beta"); variant (1-s): one
Fine-tuning:         after the last round, k mini-batch steps on w_i, evaluated as the final personal model (Table 8)

| symbol  | meaning                                       | name here                                       |
| ------- | --------------------------------------------- | ----------------------------------------------- |
| w_i     | personal model of client i                    | `State.models[row]`                             |
| w_g     | their mean at a reset                         | `State.mean`                                    |
| g_i     | descent of client i                           | -`uplink.vectors["delta"]`, -`...["probe"]`     |
| S_s     | similarity matrix of stage s                  | `State.similarity[stage]`                       |
| Gamma   | rounds between two resets                     | `Params.gamma`                                  |
| eta     | server step                                   | `Params.server_lr`                              |

What is evaluated in a round with a reset is the personal model before it. Probe and training of such a round both start at
w_g, so one job brings both, trained with independent mini-batch orders (faithful); `cheap` takes the training's own
descent for the probe. w_g is the same for everyone: its accuracy is recorded as the global one, in those rounds.

Deviations. The printed step alpha = 0.01 with the factor n_j / n hardly moves a model; rows that sum to 1 with eta = 1 are
what can have made the published numbers. `head_mode = identity` trains the last stage alone between two resets, which fits
the published Table 1, `softmax` (the equations) fits Tables 7 and 8. `layer-mean` is the weighted mean of the cosines of a
stage's weight tensors, without biases. When only some results arrive, rows and columns are restricted to them; cosines of
clients that were not probed together stay as they were, and are 0 at first. A result that arrives after a reset counts
for the model after it. Buffers stay with their client and are averaged at a reset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import at_least, one_of, positive
from fedsim.errors import FedsimError
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.similarity import cosines, gram
from fedsim.vector import Vec, mix, weighted_mean

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Params:
    gamma: int = 10  # rounds between two resets
    head_mode: str = "softmax"  # softmax | identity
    stage_similarity: str = "concat"  # concat | layer-mean
    layer_weights: tuple[float, ...] = (0.5, 0.3, 0.2)  # for stages of so many weight tensors; others: equal weights
    weighting: str = "normalized"  # normalized | literal
    server_lr: float = 1.0
    steps_per_batch: int = 2
    probe: str = "faithful"  # faithful | cheap
    finetune_steps: int = 0  # after the last round every client trains its own model further, and that is evaluated
    finetune_lr: float = 0.001
    finetune_batch: int = 0  # 0: the run's batch size, which is also the largest

    section: ClassVar[str] = "spfl"

    def __post_init__(self) -> None:
        for name, lowest in (("gamma", 1), ("steps_per_batch", 1), ("finetune_steps", 0), ("finetune_batch", 0)):
            at_least(f"{self.section}.{name}", getattr(self, name), lowest)
        for name in ("server_lr", "finetune_lr"):
            positive(f"{self.section}.{name}", getattr(self, name))
        one_of(f"{self.section}.head_mode", self.head_mode, ("softmax", "identity"))
        one_of(f"{self.section}.stage_similarity", self.stage_similarity, ("concat", "layer-mean"))
        one_of(f"{self.section}.weighting", self.weighting, ("normalized", "literal"))
        one_of(f"{self.section}.probe", self.probe, ("faithful", "cheap"))


@dataclass
class State:
    models: Vec  # clients x parameters
    buffers: Vec  # clients x buffers
    mean: Vec  # of the models, as of the last or the coming reset
    similarity: dict[str, Matrix]  # per stage, clients x clients
    step: int = 0


class Spfl(ServerStrategy[Params, State]):
    """Everyone's own model moves along everyone's updates, the more the more similar their gradients are."""

    def init(self, theta: Vec, fleet: Fleet) -> State:
        count = len(fleet)
        similarity = {stage: np.eye(count) for stage in fleet.layout.stages}
        return State(np.tile(theta, (count, 1)), np.tile(fleet.buffers, (count, 1)), theta.copy(), similarity)

    def instruct(self, state: State, client: int) -> Downlink:
        row, resets = self._rows[client], self._resets(state.step)
        own = state.models[row]
        vectors = {"model": state.mean, "personal": own} if resets else {"model": own}
        if state.buffers.size:
            vectors["buffers"] = state.buffers[row]
        probe = resets and self.params.probe == "faithful"
        return Downlink(vectors, {"probe": probe, "finetune": state.step >= self.config.rounds}, shared=resets)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        if self._resets(state.step):
            state.models[:] = state.mean
            if state.buffers.size:
                state.buffers[:] = state.buffers.mean(axis=0)
        if probed := [a for a in arrivals if self._resets(a.step)]:
            self._compare(state, probed)
        targets = sorted({self._rows[a.client] for a in arrivals})
        for stage, parts in self.fleet.layout.stages.items():
            weights = self._weights(state, stage, targets, arrivals)
            self._aggregate(state, targets, weights, arrivals, parts)
        if state.buffers.size:
            for arrival in arrivals:
                state.buffers[self._rows[arrival.client]] = arrival.uplink.vectors["buffers"]
        state.step += 1
        if self._resets(state.step):
            state.mean = weighted_mean(list(state.models), [1] * len(state.models))
        return state

    def matrices(self, state: State) -> Mapping[str, Matrix]:
        return {f"similarity-{stage}": matrix for stage, matrix in state.similarity.items()}

    def _aggregate(
        self, state: State, targets: list[int], weights: Matrix, arrivals: Sequence[Arrival], parts: Sequence[slice]
    ) -> None:
        deltas = [a.uplink.vectors["delta"] for a in arrivals]
        for block, step in mix(self.params.server_lr * weights, deltas, parts):  # (7)
            state.models[targets, block] += step

    def _compare(self, state: State, probed: Sequence[Arrival]) -> None:
        """(5) among those who started from a common mean."""
        rows = [self._rows[a.client] for a in probed]
        probes = [self._probe(a) for a in probed]
        for stage, layers in self._layers.items():
            found = [weight * cosines(gram(probes, parts)) for weight, parts in layers]
            state.similarity[stage][np.ix_(rows, rows)] = np.sum(found, axis=0)

    def _probe(self, arrival: Arrival) -> Vec:
        vectors = arrival.uplink.vectors
        if self.params.probe == "cheap":
            return vectors["delta"]
        if "probe" not in vectors or vectors["probe"].size != vectors["delta"].size:
            raise FedsimError(f"client {arrival.client} was asked for a probe as long as the model, and sent none")
        return vectors["probe"]

    def _weights(self, state: State, stage: str, targets: list[int], arrivals: Sequence[Arrival]) -> Matrix:
        """omega_s: a row for each client that is updated, a column for each result."""
        columns = [self._rows[a.client] for a in arrivals]
        if self.params.head_mode == "identity" and stage == list(state.similarity)[-1]:
            sngs = np.equal.outer(targets, columns).astype(np.float64)
        else:
            sngs = np.exp(state.similarity[stage][np.ix_(targets, columns)])
            sngs /= sngs.sum(axis=1, keepdims=True)  # (6)
        sizes = np.array([a.uplink.examples for a in arrivals], np.float64)
        weights = sngs * (sizes / sizes.sum())
        if self.params.weighting == "normalized":
            weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(weights)

    def _resets(self, step: int) -> bool:
        return step % self.params.gamma == 0

    @cached_property
    def _rows(self) -> Mapping[int, int]:
        return {client.id: row for row, client in enumerate(self.fleet.clients)}

    @cached_property
    def _layers(self) -> Mapping[str, Sequence[tuple[float, Sequence[slice]]]]:
        """Stage -> the parts that are compared each by itself, with the weights of their cosines."""
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
    about="personal models mixed by the similarity of gradients, stage by stage (SPFL)",
    params=Params,
    server=Spfl,
    client="clients.probing:Probing",
)
