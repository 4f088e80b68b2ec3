"""Every client's last prototypes and their mean over clients: what FedProto and FedPCL have in common.

Server (1):  G_c = sum_k s_kc P_kc / sum_k s_kc, over the clients that hold class c; a subclass defines the shares s

Prototypes come with the number of samples behind each; a class that a client lacks has count 0 and is left out.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import P, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.payload import Array, Arrival, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Weights


@dataclass
class State:
    prototypes: ClientTable  # P_k: a row per client holds classes x features
    counts: Array  # clients x classes; 0: the client lacks the class, or was never heard from
    mean: Array  # G: classes x features
    totals: Array  # samples behind each row of the mean; 0: nobody holds the class, its row is 0


class Prototypes(ServerStrategy[P, State]):
    """Keeps what each client sent last."""

    no_newcomers = ""

    @abstractmethod
    def shares(self, counts: Array) -> Array:
        """s of (1), clients x classes; 0 where the count is 0."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        classes, features = shape = (fleet.classes, fleet.features)
        table = client_table(self.config, np.zeros(classes * features, np.float32), len(fleet))
        counts = np.zeros((len(fleet), classes), np.int64)
        return State(table, counts, np.zeros(shape, np.float32), counts.sum(axis=0))

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row, arrays = self.fleet.row(arrival.client), arrival.uplink.arrays
            state.prototypes[row], state.counts[row] = arrays["prototypes"].reshape(-1), arrays["counts"]
        shares = self.shares(state.counts).astype(np.float64)
        shares /= np.maximum(shares.sum(axis=0), 1)
        table = state.prototypes.reshape(len(shares), *state.mean.shape)
        mean = np.einsum("kc,kcf->cf", shares, table).astype(np.float32)  # (1)
        return State(state.prototypes, state.counts, mean, state.counts.sum(axis=0))

    def expects(self) -> Mapping[str, Spec]:
        classes, features = self.fleet.classes, self.fleet.features
        return {"prototypes": Spec((classes, features)), "counts": Spec((classes,), "int64", low=0)}
