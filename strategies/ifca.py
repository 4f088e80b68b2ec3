"""IFCA: iterative federated clustering (Ghosh, Chung, Yin, Ramchandran 2020, arXiv 2006.04088), model averaging.

Client (1):  j_i = argmin_{j < K} F_i(theta_j), the mean loss on its training data
       (2):  delta_i = LocalSGD(theta_{j_i}; D_i) - theta_{j_i}; it sends j_i and delta_i
Server (3):  theta_j <- theta_j + sum_{i in S_j} (n_i / n_{S_j}) delta_i,   S_j = {i in S: j_i = j}: (1) of `clustered`
Restart (4): theta_1 .. theta_K <- the next K random draws, if some j has fewer than `least` of the choices

| symbol  | meaning                                        | name here                                      |
| ------- | ---------------------------------------------- | ---------------------------------------------- |
| theta_j | model of cluster j, `cluster-j` of the downlink | `State.models[j]`                             |
| K       | number of clusters                             | `Params.clusters`                              |
| j_i     | last choice of client i                        | `State.members`, `cluster` of the uplink       |

The K models are independent draws of the initial model. Choices are made by training loss, never by test data; the K
losses come from one pass over the data. Personal is the model that the client chooses by (1) from the present ones: an
evaluation, too, receives all K models. Results of an earlier draw are dropped; an empty cluster is unchanged.

(4) is how the authors look for a good start: they draw again until every cluster is chosen by enough clients (35 % of
them for K = 2, 10 % for K = 4). Here a draw is judged once, when `JUDGES` K clients (or all) have chosen since, after the
training of that round: a rejected draw costs the rounds in which it was judged, and no further message. The first draw
that is not rejected is kept, else the last. All draws are made before the first round, by one of the clients.
Deviations: the mean is by samples; the authors' is uniform over equal clients. They decay the learning rate by 0.99
per round, which is `lr-schedule=0.99:1`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import Fraction, NonNegativeInt, PositiveInt
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.clustered import UNKNOWN, Clustered, ClusterState
from fedsim.weights import Weights

log = logging.getLogger(__name__)
JUDGES = 4  # choices per cluster that a judgement needs


@dataclass(frozen=True)
class Params:
    clusters: PositiveInt = 2  # K, the number of clusters
    restarts: NonNegativeInt = 5  # further draws of the K models, at most
    least: Fraction = 0.1  # share of the choices that each cluster needs, and at least one


@dataclass
class State(ClusterState):
    draw: int = 0
    since: int = 0  # the step of this draw
    accepted: bool = False


class Ifca(Clustered[Params, State]):
    """Sends all K models to everyone, and averages those that were trained from the same one."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        drawn = [model, *fleet.draws][: self.params.clusters]
        return State(started(drawn), np.full(len(fleet), UNKNOWN))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        return Downlink({f"cluster-{j}": own.model for j, own in enumerate(state.models)}, shared=False)

    def cluster_of(self, state: State, arrival: Arrival) -> int:
        return int(arrival.uplink.arrays["cluster"][0])

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        fresh = [a for a in arrivals if a.step >= state.since and self._valid(state, a)]
        for arrival in fresh:
            state.members[self.fleet.row(arrival.client)] = self.cluster_of(state, arrival)
        state = super().update(state, fresh)  # (3)
        if state.draw < self.params.restarts and not state.accepted:
            self._judge(state)
        return state

    def expects(self) -> Mapping[str, Spec]:
        return {**super().expects(), "cluster": Spec((1,), "int64")}

    def _judge(self, state: State) -> None:
        """(4)."""
        chosen = state.members[state.members != UNKNOWN]
        if len(chosen) < min(len(self.fleet), JUDGES * self.params.clusters):
            return
        fewest = np.bincount(chosen, minlength=self.params.clusters).min()
        state.accepted = bool(fewest >= max(1, self.params.least * len(chosen)))
        if not state.accepted:
            state.draw, state.since = state.draw + 1, state.models[0].step
            first = state.draw * self.params.clusters - 1  # the run's initial model is not one of `draws`
            drawn = self.fleet.draws[first : first + self.params.clusters]
            state.models, state.members[:] = started(drawn, state.since), UNKNOWN

    def _valid(self, state: State, arrival: Arrival) -> bool:
        chosen, count = self.cluster_of(state, arrival), self.params.clusters
        if not 0 <= chosen < count:
            log.warning("client %d claims cluster %d of %d: its result is dropped", arrival.client, chosen, count)
        return 0 <= chosen < count


def started(models: Sequence[Weights], step: int = 0) -> list[GlobalState]:
    """Clusters that begin at this step with these models."""
    return [GlobalState(model.copy(), step) for model in models]


IFCA = Algorithm(
    name="ifca",
    about="K models; each client trains the one with the lowest loss on its data (Ghosh et al. 2020)",
    params=Params,
    server=Ifca,
    client="fedsim.clients.ifca:IfcaClient",
    draws=lambda params: params.clusters * (params.restarts + 1),
)
