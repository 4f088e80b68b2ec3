"""FedPAC: feature alignment and collaboration between classifiers (Xu, Tong, Huang 2023, arXiv 2306.11867).

Client (1):  h_i[c] = p_ic mu_ic;   v_i = (1/n_i) sum_c ( p_ic E|f|^2_ic - |h_i[c]|^2 ), on the received (phi, psi_i)
       (2):  psi_i <- one epoch of SGD on F_i, phi frozen;   then
             phi_i <- E epochs of SGD on F_i + lambda * MSE(f(x), G_y), psi_i frozen
       (3):  sends phi_i - phi, psi_i, h_i, v_i and P_ic = mean of f over the samples of class c, after training
Server (4):  phi <- phi + sum_{i in S} (n_i / n_S) * (phi_i - phi)
       (5):  G_c <- sum_{i in S} n_ic P_ic / sum_{i in S} n_ic
       (6):  psi_i <- sum_{j in S} a_ij psi_j for i in S,   a_i = argmin_a a^T (diag v + B_i) a on the simplex,
             (B_i)_jk = sum_c (h_i - h_j)[c] . (h_i - h_k)[c]

| symbol  | meaning                                                     | name here                         |
| ------- | ----------------------------------------------------------- | --------------------------------- |
| phi     | base, shared by all                                         | `State.model`                     |
| psi_i   | head of client i                                            | `State.heads[row]`                |
| G_c     | global mean of the features of class c                      | `State.prototypes[c]`             |
| p_ic    | share of class c among the samples of client i              |                                   |
| mu_ic   | mean of the features of class c at client i                 |                                   |
| n_ic    | samples of class c at client i, known from the roll call    | `Fleet.labels`                    |
| lambda  | weight of the alignment                                     | `Params.lam`                      |

a_i weighs the variance that a head brings (v) against the distance of its client's data (B), whose square root is a
distance of the vectors h. B_i is a product of a matrix with its transpose, so (6) is convex. Weights below 0.001 are
cut and the rest is scaled to 1, as in the authors' code. Clients that are absent keep their head; a class that no
arrival holds keeps its G; a class without G has no alignment, which is every class in the first round. The personal
model is the received phi with the mixed psi_i; there is no global model. Clients that never took part receive the mean
of all psi_i. BatchNorm statistics of the base belong to phi. (6) is exact (`least_on_simplex`) where the authors repair
eigenvalues for a solver. With lambda = 0 and `mix` off it is FedRep with one epoch for the head. `head-lr` is the
authors' 0.1 for every run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeFloat, PositiveFloat, PositiveInt
from fedsim.payload import Array, Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.similarity import Matrix
from fedsim.strategies.shared_part import SharedPart
from fedsim.strategies.simplex import least_on_simplex
from fedsim.weights import Weights, mix, weighted_mean

LEAST = 1e-3  # weights of (6) below this are cut


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 1.0  # lambda: weight of the distance to the global means of features
    head_epochs: PositiveInt = 1  # of the first phase, which trains the head
    head_lr: PositiveFloat = 0.1  # learning rate of that phase
    mix: bool = True  # false: every client keeps its own head, without (6)


def nothing() -> Array:
    return np.zeros((0, 0), np.float32)


@dataclass
class State(GlobalState):
    heads: ClientTable = field(default_factory=nothing)
    prototypes: Array = field(default_factory=nothing)  # classes x features
    counts: Array = field(default_factory=nothing)  # samples behind them; 0: none yet


class FedPac(SharedPart):
    """(4), (5), (6)."""

    def private(self) -> Sequence[str]:
        return ["head"]

    def init(self, model: Weights, fleet: Fleet) -> State:
        head = model.only(~self.part).parameters
        heads = client_table(self.config, head, len(fleet))
        means = np.zeros((fleet.classes, fleet.layout.features), np.float32)
        return State(**vars(super().init(model, fleet)), heads=heads, prototypes=means, counts=fleet.labels[0] * 0)

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        assert isinstance(state, State)
        head = state.heads[self.fleet.row(client)].copy()  # (6) may change the row before a late client reads it
        arrays = {"prototypes": state.prototypes, "counts": state.counts} if train else {}
        return Downlink({"shared": state.model, "head": Weights(head)}, arrays, shared=False)

    def newcomer(self, state: GlobalState, client: int) -> Downlink:
        assert isinstance(state, State)
        head = weighted_mean(list(state.heads), [1] * len(state.heads))
        arrays = {"prototypes": state.prototypes, "counts": state.counts}
        return Downlink({"shared": state.model, "head": Weights(head)}, arrays, shared=False)

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        rows = [self.fleet.row(a.client) for a in arrivals]
        sent = [a.uplink.weights["head"].parameters for a in arrivals]
        for block, values in mix(self._mixing(arrivals), sent, [slice(0, sent[0].size)]):
            state.heads[rows, block] = values
        labels = self.fleet.labels[rows]
        fresh, means = labels.sum(axis=0), [a.uplink.arrays["prototypes"] for a in arrivals]
        total = np.einsum("kc,kcf->cf", labels, np.stack(means), dtype=np.float64) / np.maximum(fresh, 1)[:, None]
        prototypes = np.where(fresh[:, None] > 0, total, state.prototypes).astype(np.float32)  # (5)
        after = vars(super().update(state, arrivals))  # (4)
        return State(**after, heads=state.heads, prototypes=prototypes, counts=state.counts + fresh)

    def _mixing(self, arrivals: Sequence[Arrival]) -> Matrix:
        if not self.params.mix:
            return np.eye(len(arrivals))
        h = np.stack([a.uplink.arrays["h"].reshape(-1) for a in arrivals]).astype(np.float64)
        return head_weights(h, np.concatenate([a.uplink.arrays["v"] for a in arrivals]).astype(np.float64))

    def expects(self) -> Mapping[str, Spec]:
        layout = self.fleet.layout
        shape = (self.fleet.classes, layout.features)
        head = Spec.weights(layout, "model", layout.part("head"))
        return {**super().expects(), "head": head, "prototypes": Spec(shape), "h": Spec(shape), "v": Spec((1,))}


def head_weights(h: Matrix, v: Matrix) -> Matrix:
    """(6): the rows a_i, from the rows h_i and the variances v_i."""
    gram = (h - h.mean(axis=0)) @ (h - h.mean(axis=0)).T  # of differences alone, as B is: the mean cancels
    rows = np.empty_like(gram)
    for i, row in enumerate(rows):
        b = gram[i, i] - gram[i][:, None] - gram[i][None, :] + gram
        row[:] = least_on_simplex(np.diag(np.maximum(v, 0)) + b)
    kept: Matrix = np.where(rows < LEAST, 0, rows)
    kept /= kept.sum(axis=1, keepdims=True)
    return kept


FEDPAC = Algorithm(
    name="fedpac",
    about="aligned features, and heads mixed by the distance of the clients' data (Xu et al. 2023)",
    params=Params,
    server=FedPac,
    client="fedsim.clients.fedpac:FedPacClient",
    label_counts=True,
    targets="labels",
)
