"""Sageflow: against stragglers and adversaries at once (Park et al. 2021, NeurIPS).

Groups (1):  U_i: the results of step t whose clients started from the global model w_i of step i <= t
Filter (2):  k is left out of its group if E_k >= E_th,   E_k = mean over public x of - sum_q p_q(x) log p_q(x)
Group (3):   v_i = sum_{k in U_i} beta_k w_k,   beta_k proportional to n_k / F_k^delta, with sum 1 in the group
Server (4):  w <- (1 - gamma) w + gamma sum_i alpha_i v_i,
             alpha_i proportional to (t - i + 1)^(-lambda) sum_{k in U_i} n_k, with sum 1 over the groups
Client (5):  w_k = LocalSGD(w_i; D_k), as FedAvg

| symbol   | meaning                                            | name here                                  |
| -------- | -------------------------------------------------- | ------------------------------------------ |
| w, w_i   | global model, now and at step i                    | `State.model`, `State.history`             |
| p(x)     | softmax of the output of w_k for x                 | `public_test`                              |
| E_k, F_k | entropy and mean loss of w_k on the public data    | `public-entropy`, `public-loss` in events  |
| E_th     | largest entropy, in nats                           | `entropy`                                  |
| delta    | how much the loss counts                           | `delta`                                    |
| t - i    | staleness                                          | `arrival.staleness`                        |
| lambda   | how much staleness counts                          | `lam`                                      |
| gamma    | step size, 0.5^(t div 20) by default               | `gamma`, START:FACTOR:STEPS                |

Poisoned models such as -0.1 w predict all classes alike: (2) finds them. Models of poisoned data are sure of wrong labels:
(3) gives them a small weight. Late results join the step after which they arrive (pace=periodic); w_k is base + update.
The authors' values: entropy 1 and delta 1 against poisoned models and labels, entropy 2 and delta 5 against backdoors;
gamma is halved after every 15 (MNIST), 20 (Fashion-MNIST) or 300 (CIFAR-10) steps. E_th must be below log(classes): that is
the entropy of a model that has not learned anything. Without a filter (entropy=inf), with delta = lambda = 0 and gamma = 1
this is FedAvg, without stale results bit by bit.

An honest model that is hardly trained is as unsure as a poisoned one. If the filter would empty a group, the group is kept
with its loss weights alone, and this is logged (`emptied=keep`). With `emptied=drop`, as in the authors' code, it is left
out, and if no group is left w stays as it is. (3) goes through the run's `aggregator`: with entropy=inf and delta=0,
`aggregator=rfa` is the paper's Sag + RFA. A model whose loss is not finite is left out in any case. Buffers are mixed and
averaged as parameters are. Deviation: beta and alpha count samples, as the paper says; the code counts clients.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

import numpy as np

from fedsim.aggregators.base import shares_of
from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import NonNegativeFloat, PositiveFloat
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Metrics
from fedsim.schedule import Schedule
from fedsim.server.fleet import Fleet
from fedsim.strategies.staleness import discount
from fedsim.weights import Vec, Weights, weighted_sum

LEAST = 1e-12  # a loss counts as at least this
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Params:
    entropy: PositiveFloat = 1.0  # E_th: models of more entropy on the public data, in nats, are left out
    delta: NonNegativeFloat = 1.0  # how much the loss on the public data counts
    lam: NonNegativeFloat = 0.5  # lambda: how much staleness counts
    gamma: str = "1:0.5:20"  # step size, X | START:FACTOR:STEPS, at most 1
    emptied: Literal["keep", "drop"] = "keep"  # what happens to a group of which the filter would leave nothing

    def __post_init__(self) -> None:
        schedule = Schedule.parse("sageflow.gamma", self.gamma)
        if schedule is not None and max(schedule.start, schedule.factor) > 1:
            raise ConfigError(f"sageflow.gamma is {self.gamma}: its start and its factor must be at most 1")


@dataclass
class State(GlobalState):
    judged: list[dict[str, float]] = field(default_factory=list)  # the results of the last step, in their order


@dataclass
class Result:
    """A result of the step, and what becomes of it."""

    arrival: Arrival
    test: Metrics  # on the public data
    weight: float = 0.0  # beta_k before its group is normalized; 0: it is left out
    share: float = 0.0  # alpha_i beta_k

    @property
    def recorded(self) -> dict[str, float]:
        """In the run's events; a number that is not finite is left out."""
        found = {f"public-{name}": self.test[name] for name in ("loss", "entropy")}
        return {**{name: value for name, value in found.items() if isfinite(value)}, "share": self.share}


class Sageflow(GlobalStrategy[Params]):
    """Groups of equal staleness, models that are unsure left out, the others weighted by their loss on public data."""

    averages = averages_model = True

    def init(self, model: Weights, fleet: Fleet) -> State:
        if not fleet.classes:
            raise ConfigError("sageflow needs classes: it filters by the entropy of their probabilities")
        return State(model.copy())

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        results = [Result(a, self.public_test(self._local(state, a))) for a in arrivals]
        steps = sorted({a.step for a in arrivals})
        groups = [kept for i in steps if (kept := self._kept([r for r in results if r.arrival.step == i]))]  # (1)
        if not groups:
            log.warning("round %d: no result passed the filter, the global model stays as it is", state.step + 1)
        model = self._mixed(state, groups) if groups else state.model
        return State(**vars(self.advance(state, model)), judged=[result.recorded for result in results])

    def result_metrics(self, state: GlobalState) -> Sequence[Metrics]:
        assert isinstance(state, State)
        return state.judged

    def _local(self, state: GlobalState, arrival: Arrival) -> Weights:
        delta = arrival.uplink.weights["delta"]
        return Weights(self.base(state, arrival) + delta.parameters, delta.buffers)

    def _kept(self, group: Sequence[Result]) -> Sequence[Result]:
        """The results of a group that are averaged, with their weights."""
        sound = [r for r in group if isfinite(r.test["loss"]) and isfinite(r.test["entropy"])]
        kept = [r for r in sound if r.test["entropy"] < self.params.entropy]  # (2)
        if sound and not kept and self.params.emptied == "keep":
            who = f"all results that started from round {sound[0].arrival.step + 1} ({len(sound)})"
            log.info("%s have an entropy of %g or more: their loss alone counts", who, self.params.entropy)
            kept = sound
        best = min((r.test["loss"] for r in kept), default=0.0)
        for result in kept:
            worse = np.float64(max(result.test["loss"], LEAST) / max(best, LEAST))
            result.weight = float(result.arrival.uplink.examples * worse**-self.params.delta)  # (3)
        return kept

    def _mixed(self, state: GlobalState, groups: Sequence[Sequence[Result]]) -> Weights:
        """The next global model; also sets the shares of the results."""
        w, moves, buffers = state.model.parameters, list[Vec](), [state.model.buffers]
        sizes = [sum(r.arrival.uplink.examples for r in group) for group in groups]
        ages = [discount("polynomial", group[0].arrival.staleness, self.params.lam, 0) for group in groups]
        alphas = shares_of([size * age for size, age in zip(sizes, ages, strict=True)])
        for group, alpha in zip(groups, alphas, strict=True):
            arrivals, weights = [r.arrival for r in group], [r.weight for r in group]
            for result, beta in zip(group, shares_of(weights), strict=True):
                result.share = float(alpha * beta)
            mean = self.aggregate_updates(state, [a.uplink.weights["delta"].parameters for a in arrivals], weights)
            stale = arrivals[0].staleness > 0
            moves.append(mean + (self.base(state, arrivals[0]) - w) if stale else mean)  # v_i - w
            buffers.append(self.mean_buffers(state, arrivals, weights))
        steps = self._gamma(state.step) * alphas
        after = w + weighted_sum(moves, steps.tolist())  # (4)
        return Weights(after, weighted_sum(buffers, [1 - steps.sum(), *steps.tolist()]))

    def _gamma(self, step: int) -> float:
        schedule = Schedule.parse("sageflow.gamma", self.params.gamma)
        assert schedule is not None
        return schedule.at(step)


SAGEFLOW = Algorithm(
    name="sageflow",
    about="groups by staleness, an entropy filter and loss weights on public data (Park et al. 2021)",
    params=Params,
    server=Sageflow,
    pace="periodic",
    public=("server",),
    server_needs=("torch",),
    vectorizes=True,
    targets="classes",
)
