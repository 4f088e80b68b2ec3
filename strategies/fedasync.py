"""FedAsync: asynchronous federated optimization (Xie, Koyejo, Gupta 2019, arXiv 1903.03934).

Client (1):      x_k = SGD on f_k(x) + (rho/2) ||x - w_a||^2, started at the received global model w_a
Sequential (2):  for each arrival, with staleness u = now - a:   alpha_u = alpha * s(u)
                 w <- (1 - alpha_u) * w + alpha_u * x_k
Round (3):       PLGA's version for Table 2: a stale model is mixed with the current global model before the round's
                 average, x_k <- alpha_u * x_k + (1 - alpha_u) * w, fresh ones stay as they are;
                 w <- sum_k (n_k / n) x_k. It has no proximal term: set rho = 0.

| symbol | meaning                                   | name here                                       |
| ------ | ----------------------------------------- | ----------------------------------------------- |
| w      | global model                              | `State.model`                                   |
| x_k    | local model of client k                   | base + `uplink.weights["delta"]`                |
| now, a | version of w, and of what client k got    | `State.version`, `State.versions[arrival.step]` |
| s      | staleness discount                        | `fedsim.strategies.staleness`                   |
| rho    | weight of the proximal term               | `Params.rho`                                    |

Staleness counts versions of the global model. In (2) every applied arrival makes a version: of several arrivals in one
server step, each is one version staler than the one applied before it, and a step with k arrivals adds k to the
staleness of the clients that are still training. In (3) a step makes one version. With one arrival per step
(pace=buffered with its default pace.k=1) versions are server steps, and u is `arrival.staleness`. Simultaneous
arrivals are applied in client order. Buffers are mixed and averaged as parameters are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NonNegativeFloat, PositiveFraction
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.strategies.staleness import Discount, discount
from fedsim.weights import Weights, weighted_mean


@dataclass(frozen=True)
class Params:
    alpha: PositiveFraction = 0.6  # mixing weight of a fresh model
    discount: Discount = "polynomial"  # s(u), how the weight of a model falls with its staleness
    a: NonNegativeFloat = 0.5  # of the discount; the paper: 0.5 for polynomial, 10 for hinge
    b: NonNegativeFloat = 4.0  # staleness up to which hinge does not discount
    rho: NonNegativeFloat = 0.005  # weight of the proximal term in local training
    mode: Literal["sequential", "round"] = "sequential"  # mix models in one by one, or average a round


@dataclass
class State(GlobalState):
    version: int = 0  # of `model`
    versions: dict[int, int] = field(default_factory=dict)  # of the models in `history`, by step


class FedAsync(GlobalStrategy[Params]):
    """Mixes every arrival into the global model, with a weight that decreases with its staleness."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        return State(model.copy())

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"model": state.model}, numbers={"proximal": self.params.rho})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        models, ages = [self._local(state, a) for a in arrivals], [self._staleness(state, a) for a in arrivals]
        if self.params.mode == "round":
            mixed = [self._mix(state.model, x, age) if age else x for x, age in zip(models, ages, strict=True)]
            model, made = _mean(mixed, [a.uplink.examples for a in arrivals]), 1  # (3)
        else:
            model, made = state.model, len(arrivals)
            for applied, (x, age) in enumerate(zip(models, ages, strict=True)):
                model = self._mix(model, x, age + applied)  # (2)
        after, known = self.advance(state, model), {**state.versions, state.step: state.version}
        return State(
            **vars(after), version=state.version + made, versions={step: known[step] for step in after.history}
        )

    def _local(self, state: State, arrival: Arrival) -> Weights:
        delta = arrival.uplink.weights["delta"]
        return Weights(self.base(state, arrival) + delta.parameters, delta.buffers)

    def _staleness(self, state: State, arrival: Arrival) -> int:
        """Versions since the one this client started from, before any arrival of this step."""
        return 0 if arrival.step == state.step else state.version - state.versions[arrival.step]

    def _mix(self, model: Weights, local: Weights, staleness: int) -> Weights:
        params = self.params
        weight = np.float32(params.alpha * discount(params.discount, staleness, params.a, params.b))
        parameters = (1 - weight) * model.parameters + weight * local.parameters
        return Weights(parameters, (1 - weight) * model.buffers + weight * local.buffers)


def _mean(models: Sequence[Weights], sizes: Sequence[int]) -> Weights:
    parameters = weighted_mean([m.parameters for m in models], sizes)
    return Weights(parameters, weighted_mean([m.buffers for m in models], sizes))


FEDASYNC = Algorithm(
    name="fedasync",
    about="mixes every arrival into the global model, stale ones with a smaller weight (Xie et al. 2019)",
    params=Params,
    server=FedAsync,
    client="fedsim.clients.fedprox:Proximal",
    pace="buffered",
    vectorizes=True,
)
