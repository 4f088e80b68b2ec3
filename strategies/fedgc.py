"""FedGC: federated learning with gradient correction of the clients' class embeddings (Niu, Deng 2022,
AAAI, arXiv 2112.07246).

Client (1):  trains phi and its own rows w_kc jointly: cross-entropy of softmax_c(w_kc . f(x)) over the classes C_k of
             client k alone, without biases; sends delta_k of phi and of its rows
Server (2):  phi <- phi + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg; w_kc <- w_kc + delta_kc
       (3):  W <- W - lambda * eta * grad Reg(W)
       (4):  Reg = -sum_{(k,c)} log( e^{w_kc . s_kc} / (e^{w_kc . s_kc} + sum_{(z,j): z != k, j != c} e^{w_zj . s_kc}) )
             with s = w held constant, so that grad_{w_zj} Reg = sum_{(k,c)} p_{zj|kc} s_kc - s_zj

| symbol     | meaning                                            | name here                          |
| ---------- | -------------------------------------------------- | ---------------------------------- |
| phi        | base: everything but the head                      | `State.model`                      |
| w_kc       | row of class c in the head of client k             | `State.rows`, see `_heads`         |
| C_k        | classes of client k, known from the roll call      | `Client.labels`                    |
| p_{zj|kc}  | softmax of (4) at row (z, j); 0 where no term is   | `shares` in `correction`           |
| lambda     | strength of the correction                         | `Params.lam`                       |
| eta        | learning rate of the run, by its schedule          | `lr_at`                            |

Rows of other clients' classes push a row away, and its own term draws it along itself. A client exchanges the rows of
its own classes alone; rows of absent clients stay and are pushed too. The personal model is phi with the client's own
rows, other classes excluded; there is no global model. The mask of (1) is a frozen bias: 0, or -1e9 for other classes.
Deviations: the paper has one client per class; where clients share a class, its rows do not push each other (j != c).
Rows travel as updates, so that corrections made while a client trained are kept. Rows start from the common initial
head. No official code is known: the default of lambda is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, GlobalState
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeFloat, lr_at
from fedsim.errors import FedsimError
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.shared_part import SharedPart
from fedsim.weights import Weights, blocks

ANCHORS = 256  # rows whose products with all others are in memory at once


@dataclass(frozen=True)
class Params:
    lam: NonNegativeFloat = 1.0  # lambda, strength of the correction that pushes classes apart


@dataclass
class State(GlobalState):
    rows: ClientTable = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # clients x (classes * features)


class FedGC(SharedPart):
    """(2) and (3): the mean of the bases, and every client's rows, corrected against each other."""

    params: Any
    no_newcomers = "the server keeps the rows of a client's own classes, which it learns with the client"

    def private(self) -> Sequence[str]:
        return ["head"]

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Clients x classes: which client holds which class."""
        return self.fleet.labels > 0

    def init(self, model: Weights, fleet: Fleet) -> State:
        head, size = model.only(~self.part).parameters, fleet.classes * fleet.layout.features
        return State(model.only(self.part), rows=client_table(self.config, head[:size], len(fleet)))

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        row = self.fleet.row(client)
        return Downlink({"shared": state.model}, {"rows": self._heads(state)[row, self.held[row]]}, shared=False)

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        heads, step = self._heads(state), self.params.lam * lr_at(self.config, state.step)
        for arrival in arrivals:
            row, delta = self.fleet.row(arrival.client), arrival.uplink.arrays["rows"]
            if delta.shape != (expected := (int(self.held[row].sum()), heads.shape[2])):
                raise FedsimError(f"client {arrival.client} sent rows of shape {delta.shape} instead of {expected}")
            heads[row, self.held[row]] += delta  # (2)
        heads[self.held] -= step * correction(heads[self.held], *np.nonzero(self.held))  # (3)
        return State(**vars(super().update(state, arrivals)), rows=state.rows)

    def expects(self) -> Mapping[str, Spec]:
        return {**super().expects(), "rows": Spec(role="update")}

    def _heads(self, state: GlobalState) -> NDArray[np.float32]:
        """The rows as clients x classes x features, a view."""
        assert isinstance(state, State)
        return state.rows.reshape(*self.held.shape, self.fleet.layout.features)


def correction(rows: NDArray[Any], owners: NDArray[np.intp], classes: NDArray[np.intp]) -> NDArray[np.float32]:
    """The gradient of Reg (4) at every row; each row belongs to a client and a class."""
    gradient, exact = -rows.astype(np.float64), rows.astype(np.float64)
    for anchors in blocks(len(rows), ANCHORS):
        own = np.arange(len(rows))[anchors, None] == np.arange(len(rows))
        rivals = (owners[anchors, None] != owners) & (classes[anchors, None] != classes)
        products = np.where(own | rivals, exact[anchors] @ exact.T, -np.inf)
        shares = np.exp(products - products.max(axis=1, keepdims=True))  # the largest first: e^(w.w) would overflow
        shares /= shares.sum(axis=1, keepdims=True)
        gradient += shares.T @ exact[anchors]
    return gradient.astype(np.float32)


FEDGC = Algorithm(
    name="fedgc",
    about="clients train over their own classes; the server moves their heads apart (Niu and Deng 2022)",
    params=Params,
    server=FedGC,
    client="fedsim.clients.fedgc:FedGCClient",
    label_counts=True,
    targets="labels",
)
