"""FedProto: prototypes of classes instead of models (Tan et al. 2022, arXiv 2105.00243).

Client (1):  P_kc = mean of the features f(x) over the samples of class c at client k, after its training
       (2):  w_k <- w_k - eta * grad [ F_k(w_k) + lambda * MSE(f(x), G_y) ], on its own model
Server (3):  G_c = sum_k n_kc P_kc / sum_k n_kc, over every client's last prototypes
Test   (4):  the class of x is argmin_c ||f(x) - G_c||^2, over the classes of client k

| symbol | meaning                                           | name here                        |
| ------ | ------------------------------------------------- | -------------------------------- |
| P_kc   | prototype of class c at client k                  | `State.prototypes[row, c]`       |
| n_kc   | samples of class c at client k                    | `State.counts[row, c]`           |
| G_c    | global prototype                                  | `prototypes` of the downlink     |
| w_k    | model of client k, which never travels            | `model` in the client's state    |
| F      | width of the features, the input of the head      | `Layout.features`                |

No weights are exchanged: a round moves C x F floats and C counts each way. The MSE is a mean over the mini-batch and the F
entries; a sample whose class has no prototype yet has no such term. (4) is a linear head with weights G_c and biases
-||G_c||^2 / 2, so it is evaluated as any other model; a client that received no prototypes uses its own head.
Deviations: (3) weighs by samples, with weights that sum to 1; the printed equation divides once more by the number of
holders, the authors' code weighs holders equally. (1) is a pass after training, not a mean over the last epoch's batches.
All clients of one architecture start from the same initial model. Models may differ as long as F is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import NonNegativeFloat
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 1.0  # lambda: weight of the distance to the prototypes


@dataclass
class State:
    prototypes: NDArray[Any]  # clients x classes x features
    counts: NDArray[Any]  # clients x classes; 0: the client lacks the class, or was never heard from


class FedProto(ServerStrategy[Params, State]):
    """Keeps every client's last prototypes and sends their weighted mean."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        shape = (len(fleet), fleet.classes)
        return State(np.zeros((*shape, fleet.features), np.float32), np.zeros(shape, np.int64))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        counts = state.counts.sum(axis=0)
        total = np.einsum("kc,kcf->cf", state.counts, state.prototypes, dtype=np.float64)
        mean = total / np.maximum(counts, 1)[:, None]  # (3)
        return Downlink(arrays={"prototypes": mean.astype(np.float32), "counts": counts}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row, arrays = self.fleet.row(arrival.client), arrival.uplink.arrays
            state.prototypes[row], state.counts[row] = arrays["prototypes"], arrays["counts"]
        return state

    def expects(self) -> Mapping[str, Spec]:
        classes, features = self.fleet.classes, self.fleet.features
        return {"prototypes": Spec((classes, features)), "counts": Spec((classes,), "int64")}


FEDPROTO = Algorithm(
    name="fedproto",
    about="clients exchange mean features of classes instead of models (Tan et al. 2022)",
    params=Params,
    server=FedProto,
    client="fedsim.clients.fedproto:FedProtoClient",
    common=None,
)
