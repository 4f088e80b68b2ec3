"""FedKD: adaptive mutual distillation and compressed updates (Wu et al. 2022, arXiv 2108.13323).

Client (1):  q = 1 / (CE(m) + CE(s))
       (2):  L_m = CE(m) + q (KL(s || m) + H),   L_s = CE(s) + q (KL(m || s) + H),   H = MSE(f_m, W f_s)
       (3):  m_k, s_k, W_k <- a step each along their gradients; s_k starts at s
       (4):  sends each matrix of s_k - s as U diag(sigma) V^T of the smallest rank K with
             sum_{j <= K} sigma_j^2 >= T sum_j sigma_j^2,   T = start + (end - start) (r + 1) / R
Server (5):  s <- s + sum_{k in S} (n_k / n_S) * (s_k - s), as FedAvg, of the products

| symbol   | meaning                                                      | name here                             |
| -------- | ------------------------------------------------------------ | ------------------------------------- |
| s        | shared model ("mentee")                                      | `GlobalState.model`                   |
| m_k, W_k | private model ("mentor"), and projection of features         | `model`, `projection` in the state    |
| f        | features, the input of the head                              | `Trainer.forward`                     |
| r, R     | round, number of rounds                                      | `GlobalState.step`, `RunConfig.rounds`|
| T        | share of the squared singular values that is kept            | `energy` of the downlink              |

A convolution is a matrix with a row per output channel. A matrix a x b of rank K travels as K rows of 1 + a + b floats
(sigma, u, v), or as it is where that is not larger, or with T = 1; one that did not change at all is left out. Vectors
and BatchNorm statistics travel as they are. The personal model is m_k; s is the global one. q and the partner's output
and features get no gradient: with a gradient of q the cross-entropy would be unlearned once it is small. W starts as
the identity (cut to the features' widths) and takes a step along q dH/dW. `kl` = `hidden` = 0 with `start` = `end` = 1
is FedAvg for s and local training for m_k, bit for bit.
Deviations: only uplinks are compressed, because a compressed update is wrong for a client that missed the last one;
updates are averaged by samples; m_k's optimizer starts anew in every job. Clients may have different mentors
(`model=mlp,cnn`); `shared` then names the model of s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import Fraction, NonNegativeFloat
from fedsim.layout import VECTORS, Layout
from fedsim.payload import Arrival, Downlink, Spec, Uplink
from fedsim.strategies.shared_network import SharedNetwork, SharedParams
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params(SharedParams):
    start: Fraction = 0.95  # T, share of the energy that compressed updates keep, before the first round
    end: Fraction = 0.98  # T in the last round
    kl: NonNegativeFloat = 1.0  # weight of KL in (2); 0: no distillation of outputs
    hidden: NonNegativeFloat = 1.0  # weight of H in (2); 0: no distillation of features


class FedKd(SharedNetwork):
    """(5)."""

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        start, end = self.params.start, self.params.end
        energy = start + (end - start) * min(1.0, (state.step + 1) / self.config.rounds)  # (4)
        return Downlink({"model": state.model}, numbers={"energy": energy} if train else {})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        dense = [{"delta": restored(self.fleet.layout, arrival.uplink)} for arrival in arrivals]
        uplinks = [replace(a.uplink, weights=delta, arrays={}) for a, delta in zip(arrivals, dense, strict=True)]
        return super().update(state, [replace(a, uplink=u) for a, u in zip(arrivals, uplinks, strict=True)])

    def expects(self) -> Mapping[str, Spec]:
        """Factors count as statistics, so that filters of updates refuse them instead of passing them by."""
        layout = self.fleet.layout
        raw = {t.name: Spec(t.shape, optional=True) for t in layout.matrices}
        factors = {
            f"{t.name} factors": Spec((None, 1 + t.shape[0] + t.size // t.shape[0]), optional=True)
            for t in layout.matrices
        }
        return {"delta": Spec.weights(layout, part=layout.part(VECTORS)), **raw, **factors}


def restored(layout: Layout, uplink: Uplink) -> Weights:
    """The update that an uplink stands for."""
    zeros = Weights(np.zeros(layout.size, np.float32), np.zeros(layout.buffer_size, np.float32))
    update = zeros.with_part(layout.part(VECTORS), uplink.weights["delta"])
    for tensor in layout.matrices:
        place, rows = layout.slices[tensor.name], tensor.shape[0]
        if (factors := uplink.arrays.get(f"{tensor.name} factors")) is not None:
            sigma, u, v = factors[:, :1], factors[:, 1 : 1 + rows], factors[:, 1 + rows :]
            update.parameters[place] = ((sigma * u).T @ v).reshape(-1)
        elif (raw := uplink.arrays.get(tensor.name)) is not None:
            update.parameters[place] = raw.reshape(-1)
    return update


FEDKD = Algorithm(
    name="fedkd",
    about="private mentors and a shared model distill each other; updates travel compressed (Wu et al. 2022)",
    params=Params,
    server=FedKd,
    client="fedsim.clients.fedkd:FedKdClient",
    networks={"shared": "params.shared"},
    common="shared",
    targets="labels",
)
