"""FedDistill, federated distillation (FD): mean predictions of classes instead of models (Jeong et al. 2018,
arXiv 1811.11479).

Client (1):  P_kc = mean of softmax(z(x)) over the samples of class c at client k, after its training
       (2):  w_k <- w_k - eta * grad [ F_k(w_k) + gamma * CE(G_ky, softmax(z(x))) ], on its own model
Server (3):  G_kc = sum_{j in S_c, j != k} P_jc / |S_c \\ {k}|, over the clients S_c that hold class c, without k itself

| symbol | meaning                                            | name here                              |
| ------ | -------------------------------------------------- | -------------------------------------- |
| P_kc   | mean prediction of client k for its class c        | `State.predictions[row]`, C x C        |
| S_c    | clients with samples of class c                    | `State.counts[row, c] > 0`             |
| G_kc   | what the others predict for class c                | `targets` of the downlink              |
| gamma  | weight of the distillation                         | `Params.gamma`                         |
| w_k    | model of client k, which never travels             | `model` in the client's state          |
| z(x)   | output of the network for x                        | `trainer.network`                      |

No weights are exchanged, so models may differ: a round moves C x C floats each way, and C counts up. A row of G is
zero, and its term vanishes, for a class that no other client holds; before anything was heard no targets are sent. An
absent client's last predictions count. gamma = 0, or a single client, is local training. There is no global model.
Deviation: (1) is a pass after training instead of a mean over the outputs met while training. The authors published no
code; in a public re-implementation clients that lack a class enter (3) with zeros, which draws targets to the uniform
distribution, and others compare with logits instead of probabilities: neither is done here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeFloat
from fedsim.payload import Array, Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    gamma: NonNegativeFloat = 1.0  # weight of the distillation


@dataclass
class State:
    predictions: ClientTable  # P_k: a row per client holds classes x classes, zeros for classes it lacks
    counts: Array  # clients x classes; 0: the client lacks the class, or was never heard from
    total: Array  # classes x classes: the sum of the predictions over clients


class FedDistill(ServerStrategy[Params, State]):
    """Keeps every client's last mean predictions, and sends each client the mean of the others'."""

    no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        classes = fleet.classes
        table = client_table(self.config, np.zeros(classes * classes, np.float32), len(fleet))
        return State(table, np.zeros((len(fleet), classes), np.int64), np.zeros((classes, classes)))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        if not train or not state.counts.any():
            return Downlink(shared=False)
        row = self.fleet.row(client)
        others = (state.counts > 0).sum(axis=0) - (state.counts[row] > 0)
        return self._targets(others, state.total - state.predictions[row].reshape(state.total.shape))

    def newcomer(self, state: State, client: int) -> Downlink:
        return self._targets((state.counts > 0).sum(axis=0), state.total)

    def _targets(self, others: Array, rest: Array) -> Downlink:
        targets = np.where(others[:, None] > 0, rest / np.maximum(others, 1)[:, None], 0)  # (3)
        return Downlink(arrays={"targets": targets.astype(np.float32)}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row, arrays = self.fleet.row(arrival.client), arrival.uplink.arrays
            state.predictions[row], state.counts[row] = arrays["predictions"].reshape(-1), arrays["counts"]
        total = state.predictions.sum(axis=0, dtype=np.float64).reshape(state.total.shape)
        return State(state.predictions, state.counts, total)

    def expects(self) -> Mapping[str, Spec]:
        classes = self.fleet.classes
        return {"predictions": Spec((classes, classes)), "counts": Spec((classes,), "int64", low=0)}


FEDDISTILL = Algorithm(
    name="feddistill",
    about="clients exchange mean predictions of classes instead of models (Jeong et al. 2018)",
    params=Params,
    server=FedDistill,
    client="fedsim.clients.feddistill:FedDistillClient",
    common=None,
    label_counts=True,
    targets="labels",
)
