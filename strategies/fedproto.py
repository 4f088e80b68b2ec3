"""FedProto: prototypes of classes instead of models (Tan et al. 2022, arXiv 2105.00243).

Client (1):  P_kc = mean of the features f(x) over the samples of class c at client k, after its training
       (2):  w_k <- w_k - eta * grad [ F_k(w_k) + lambda * MSE(f(x), G_y) ], on its own model
Server (3):  G_c = sum_k n_kc P_kc / sum_k n_kc, over every client's last prototypes
Test   (4):  the class of x is argmin_c ||f(x) - G_c||^2, over the classes of client k

| symbol | meaning                                           | name here                        |
| ------ | ------------------------------------------------- | -------------------------------- |
| P_kc   | prototype of class c at client k                  | `State.prototypes[row]`          |
| n_kc   | samples of class c at client k                    | `State.counts[row, c]`           |
| G_c    | global prototype                                  | `State.mean[c]`                  |
| w_k    | model of client k, which never travels            | `model` in the client's state    |
| F      | width of the features, the input of the head      | `Layout.features`                |

No weights are exchanged: a round moves C x F floats and C counts each way. The MSE is a mean over the mini-batch and
the F entries; a sample whose class has no prototype yet has no such term. (4) is a linear head with weights G_c and
biases -||G_c||^2 / 2, so it is evaluated as any other model; a client that received no prototypes uses its own head.
Deviations: (3) weighs by samples, with weights that sum to 1; the printed equation divides once more by the number of
holders, the authors' code weighs holders equally. (1) is a pass after training, not a mean over the last epoch's
batches. All clients of one architecture start from the same initial model. Models may differ as long as F is the same.
"""

from dataclasses import dataclass

from fedsim.algorithm import Algorithm
from fedsim.config import NonNegativeFloat
from fedsim.payload import Array, Downlink
from fedsim.strategies.prototypes import Prototypes, State


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 1.0  # lambda: weight of the distance to the prototypes


class FedProto(Prototypes[Params]):
    """Keeps every client's last prototypes and sends their weighted mean."""

    def shares(self, counts: Array) -> Array:
        return counts  # (3)

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        return Downlink(arrays={"prototypes": state.mean, "counts": state.totals}, shared=False)


FEDPROTO = Algorithm(
    name="fedproto",
    about="clients exchange mean features of classes instead of models (Tan et al. 2022)",
    params=Params,
    server=FedProto,
    client="fedsim.clients.fedproto:FedProtoClient",
    common=None,
    label_counts=True,
    targets="labels",
)
