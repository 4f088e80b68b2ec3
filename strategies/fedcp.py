"""FedCP: separating feature information by a conditional policy (Zhang et al. 2023, arXiv 2307.01217).

Client (1):  k = sum_c psi_p[c] / ||sum_c psi_p[c]||, before training
       (2):  (r, s) = softmax(CPN(f * k) + Gumbel noise), pairwise, so that r + s = 1 in each of the F entries
       (3):  output = psi_p(r * f) + psi_g(s * f),   f = phi(x)
       (4):  phi, psi_p and the CPN descend CE(output, y) + lambda * MMD(f, f under the received phi); psi_g is frozen
       (5):  sends the updates of phi and of the CPN, and psi_p as the head (psi_p + psi_g) / 2; keeps psi_p
Server (6):  (phi, psi_g, CPN) <- (phi, psi_g, CPN) + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg

| symbol       | meaning                                                | name here                                |
| ------------ | ------------------------------------------------------ | ---------------------------------------- |
| phi, psi_g   | base and global head                                   | `model`, also the global model           |
| CPN          | conditional policy network: Linear F -> 2F, LayerNorm, ReLU | `cpn`: 2F^2 + 6F parameters         |
| psi_p        | personal head of a client                              | `head` in the client's state             |
| F            | width of the features, the input of the head           | `Layout.features`                        |
| lambda       | weight of the distance between the features            | `Params.lam`                             |

The personal model is (3) with the received phi, psi_g and CPN, without noise: the authors' code draws noise in tests,
too, which makes accuracies random. A client without a head of its own takes psi_g. The kernels of the MMD are the
authors'. The server keeps the CPN as its difference to the common initial one, which each client knows: a server has no
networks. The model that a client of a real federation stores is (phi, psi_p), without the gate.
Deviations: all clients receive everything and k is always that of psi_p; the authors' code gives psi_g and the CPN to
the sampled clients alone and begins with a random k. Global is (phi, psi_g) as it is; the paper has no global model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.config import NonNegativeFloat
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 5.0  # lambda, weight of the distance between new and received features


class FedCP(FedAvg):
    """(6): FedAvg of two networks, which are one vector in the state: the model, then the CPN."""

    averages_model = False

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        features = fleet.layout.features
        return GlobalState(_joined(model, Weights(np.zeros(2 * features**2 + 6 * features, np.float32))))

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"model": self.global_model(state), "cpn": Weights(state.model.parameters[self._size :])})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> GlobalState:
        def joined(arrival: Arrival) -> Arrival:
            sent = arrival.uplink.weights
            return replace(
                arrival, uplink=replace(arrival.uplink, weights={"delta": _joined(sent["delta"], sent["cpn"])})
            )

        return super().update(state, [joined(arrival) for arrival in arrivals])

    def global_model(self, state: GlobalState) -> Weights:
        return Weights(state.model.parameters[: self._size], state.model.buffers)

    def expects(self) -> Mapping[str, Spec]:
        features = self.fleet.layout.features
        return {**super().expects(), "cpn": Spec((2 * features**2 + 6 * features,), role="update", buffers=0)}

    @property
    def _size(self) -> int:
        return self.fleet.layout.size


def _joined(model: Weights, cpn: Weights) -> Weights:
    return Weights(np.concatenate([model.parameters, cpn.parameters]), model.buffers)


FEDCP = Algorithm(
    name="fedcp",
    about="a gate per sample divides features between a global and a personal head (Zhang et al. 2023)",
    params=Params,
    server=FedCP,
    client="fedsim.clients.fedcp:FedCPClient",
    networks={"cpn": "fedsim.clients.fedcp:make_cpn"},
)
