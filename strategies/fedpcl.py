"""FedPCL: contrastive learning with the prototypes of all clients (Tan et al. 2022, arXiv 2209.10083).

Client (1):  P_kc = u(mean of z over the samples of class c at client k), after its training; z = f(x) / ||f(x)||
       (2):  l(z, P) = -log softmax_c(z . P_c / tau)[y]
       (3):  w_k <- w_k - eta * grad mean [ l(z, G) + (1/K) sum_j l(z, P_j) ], on its own model
Server (4):  G_c = u(mean of P_kc over the clients k that hold class c);   P_kc <- G_c where client k lacks class c
Test   (5):  the class of x is argmax_c z . P_kc, over the classes of client k

| symbol | meaning                                        | name here                                  |
| ------ | ---------------------------------------------- | ------------------------------------------ |
| P_kc   | prototype of class c at client k, of length 1  | `State.prototypes[row]`                    |
| G_c    | global prototype                               | `State.mean[c]`                            |
| K      | clients that have sent prototypes              | rows of `prototypes` in the downlink       |
| w_k    | model of client k, which never travels         | `model` in the client's state              |
| tau    | temperature                                    | `Params.tau`                               |
| u      | a vector divided by its length                 | `unit`                                     |

No weights are exchanged. A job receives G and the prototypes of all K clients (C x F floats each), which only training
needs, and sends its own with C counts. As long as nobody has sent prototypes there is nothing to learn from: a client's
job then only sends those of the initial model. There is no cross-entropy of the head, which is never trained: (5) is a
linear head with weights P_kc and no bias. Classes that nobody holds are left out of the softmax, samples of them have
no loss.
Deviations: the authors train a projection on frozen pretrained networks, here the run's model is trained as a whole;
their code contrasts prototypes as anchors with the samples of a mini-batch, (2) is the paper's loss. Models may differ
as long as F is the same.
"""

from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm
from fedsim.config import PositiveFloat, RunConfig
from fedsim.payload import Array, Downlink
from fedsim.strategies.prototypes import Prototypes, State


@dataclass(frozen=True)
class Params:
    tau: PositiveFloat = 0.07  # temperature of the contrast between prototypes


class FedPcl(Prototypes[Params]):
    """(4): keeps every client's last prototypes and sends all of them."""

    def __init__(self, params: Params, config: RunConfig) -> None:
        super().__init__(params, config)
        self._sent: tuple[Array, dict[str, Array]] | None = None  # the mean, and what is sent with it

    def shares(self, counts: Array) -> Array:
        return counts > 0

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        if not train or not state.totals.any():
            return Downlink(shared=False)
        if self._sent is None or self._sent[0] is not state.mean:  # made once per step, the same for all clients
            self._sent = state.mean, self._arrays(state)
        return Downlink(arrays=self._sent[1], shared=False)

    def _arrays(self, state: State) -> dict[str, Array]:
        mean, heard = unit(state.mean), np.flatnonzero(state.counts.any(axis=1))
        own = state.prototypes[heard].reshape(len(heard), *mean.shape)
        return {"global": mean, "prototypes": np.where(state.counts[heard, :, None] > 0, own, mean)}


def unit(rows: Array) -> Array:
    """Each row divided by its length; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


FEDPCL = Algorithm(
    name="fedpcl",
    about="contrastive learning of features with the prototypes of all clients (Tan et al. 2022)",
    params=Params,
    server=FedPcl,
    common=None,
    client="fedsim.clients.fedpcl:FedPclClient",
    label_counts=True,
    targets="labels",
)
