"""LGA: leap gradient approximation for stale results ("Personalized Heterogeneous Federated Learning with Gradient
Similarity", equations (8) to (11)).

A straggler k started from W[a] and arrives with D = w_k - W[a] in the round whose global model is W[r].
Similarity (8):   S_s(k) = cos(W[a+1] - W[a], D) over stage s
Weight (9)(13):   St_s(k) = e^S / (e + e^S) = sigmoid(S - 1), which lies in [0.119, 0.5]
Leap (10):        w_k^r = W[a] + St * D * D * (W[r] - W[a+1]) + D, products entry by entry
Leap (11):        w_k^r = W[r] + St * D * D * (W[r] - W[a+1]) + D
Server:           W[r+1] = sum_k (n_k / n) w_k^r over the results of the round; fresh models are not changed

| symbol  | meaning                                | name here                               |
| ------- | -------------------------------------- | --------------------------------------- |
| W[r]    | global model of round r                | `GlobalState.model`                     |
| W[a]    | global model the client started from   | `GlobalState.history`, with W[a+1]      |
| D       | the client's update                    | `uplink.weights["delta"]`               |

The paper uses (11). The authors' code puts the raw cosine S into the leap (`weight = raw`) and treats each tensor as a
stage (`stages = tensor`); the paper's text is the default. The second-order term is tiny as printed: in effect a stale
update is applied to the current model. `leap-scale` enlarges it. The paper averages with 1/N'; its splits are equal,
and with n_k / n LGA without stragglers is FedAvg bit by bit. Buffers are averaged. The authors' code also reads raw
pixels, class by class (`inputs=raw batches=in-order`), with cycles one round longer (`stragglers.schedule=official`):
see the presets of Table 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NonNegativeFloat
from fedsim.payload import Arrival
from fedsim.similarity import cosines, gram
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params:
    equation: Literal["11", "10"] = "11"  # which leap: (11), the paper's, or (10)
    weight: Literal["softmax", "raw"] = "softmax"  # softmax: St of (9); raw: S of (8), only in the leap
    stages: Literal["stage", "tensor"] = "stage"  # what S is computed for
    leap_scale: NonNegativeFloat = 1.0  # factor of the second-order term; 1: as printed


class Lga(GlobalStrategy[Params]):
    """FedAvg whose stale results are extrapolated to the current round."""

    averages = averages_model = optimizes = True

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        return self.advance(state, self.average(state, arrivals, [self.leap(state, a) for a in arrivals]))

    def average(self, state: GlobalState, arrivals: Sequence[Arrival], leaps: Sequence[Vec]) -> Weights:
        """The next global model; `leaps` are w_k^r - W[r]."""
        examples = [a.uplink.examples for a in arrivals]
        after = self.stepped(state, self.aggregate_updates(state, leaps, examples))
        return Weights(after, self.mean_buffers(state, arrivals, examples))

    def leap(self, state: GlobalState, arrival: Arrival) -> Vec:
        """w_k^r - W[r]: the update itself if it is fresh."""
        update = arrival.uplink.weights["delta"].parameters
        if arrival.staleness == 0:
            return update
        base, after = self.base(state, arrival), self._global(state, arrival.step + 1)
        similarity = self.similarity(after - base, update)  # (8)
        weight = similarity if self.params.weight == "raw" else sigmoid(similarity)
        second = np.float32(self.params.leap_scale) * weight * update * update * (state.model.parameters - after)
        leap = second + update  # (11)
        return leap if self.params.equation == "11" else leap + (base - state.model.parameters)  # (10)

    def similarity(self, moved: Vec, update: Vec) -> Vec:
        """(8): a vector that holds, at every entry, the similarity of its stage."""
        spread = np.empty_like(update)
        for parts in self._parts:
            value = cosines(gram([moved, update], parts))[0, 1]
            for part in parts:
                spread[part] = value
        return spread

    def advance(self, state: GlobalState, model: Weights) -> GlobalState:
        """Keeps W[a] and W[a+1] for every client that trains from W[a]."""
        bases = self.fleet.busy.values()
        needed = {*bases, *(base + 1 for base in bases)}
        known = {**state.history, state.step: state.model.parameters}
        history = {s: v for s, v in known.items() if s in needed}
        return replace(super().advance(state, model), history=history)

    def _global(self, state: GlobalState, step: int) -> Vec:
        return state.model.parameters if step == state.step else state.history[step]

    @cached_property
    def _parts(self) -> Sequence[Sequence[slice]]:
        layout = self.fleet.layout
        if self.params.stages == "tensor":
            return [[where] for where in layout.slices.values()]
        return list(layout.stages.values())


def sigmoid(similarity: Vec) -> Vec:
    """(9): e^S / (e + e^S)."""
    return np.asarray(1 / (1 + np.exp(1 - similarity)), np.float32)


LGA = Algorithm(
    name="lga",
    about="stale updates are extrapolated to the current global model (LGA)",
    params=Params,
    server=Lga,
    pace="window",
    vectorizes=True,
)
