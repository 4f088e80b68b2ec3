"""Message passing between clients through personal cloud models: what FedAMP and HeurFedAMP share.

Cloud (1):   u_i = sum_j xi_ij w_j, over the clients heard of so far; who was never heard of still gets the initial model
Client (2):  w_i = argmin_w F_i(w) + (pull/2) ||w - u_i||^2, approximately, by local SGD

An algorithm says how the weights xi come about. Models are rows of one matrix, so (1) is one product of matrices, written
into the rows of the cloud models: two N x d matrices are all the memory a server needs. Absent clients keep the model they
last sent. The model itself travels up, not a difference: that is what the server keeps, however old its base is.
Buffers stay with the clients.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import P, ServerStrategy
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.similarity import Matrix, Rows
from fedsim.vector import Vec


@dataclass
class State:
    models: Rows  # w_i, one row per client: what was last heard of everyone
    clouds: Rows  # u_i: what everyone will receive
    xi: Matrix
    heard: NDArray[np.bool_]
    pull: NDArray[np.float64]  # per client, the weight of the proximal term in (2)
    sigma: float = 0.0  # the scale in use; 0: none yet
    step: int = 0


class MessagePassing(ServerStrategy[P, State]):
    """Keeps everyone's model, and mixes a cloud model for each."""

    @abstractmethod
    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        """xi among the clients `rows`; may set `pull` and `sigma`."""

    def init(self, theta: Vec, fleet: Fleet) -> State:
        models = np.tile(theta, (len(fleet), 1))
        return State(models, models.copy(), np.eye(len(fleet)), np.zeros(len(fleet), bool), np.zeros(len(fleet)))

    def instruct(self, state: State, client: int) -> Downlink:
        row = self._row(client)
        # who was never heard of has no pull: a first round is plain local training from the common start
        return Downlink({"model": state.clouds[row]}, {"proximal": float(state.pull[row])}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        for arrival in arrivals:
            row = self._row(arrival.client)
            state.models[row], state.heard[row] = arrival.uplink.vectors["model"], True
        state.step += 1
        rows = np.flatnonzero(state.heard)
        if len(rows) > 1:
            state.xi = np.eye(len(state.heard))
            state.xi[np.ix_(rows, rows)] = self.weigh(state, rows)
        np.matmul(state.xi.astype(np.float32), state.models, out=state.clouds)  # (1)
        return state

    def matrices(self, state: State) -> Mapping[str, NDArray[Any]]:
        return {"xi": state.xi}

    def expects(self) -> Mapping[str, int]:
        return {"model": self.fleet.layout.size}

    def _row(self, client: int) -> int:
        return self._rows[client]

    def enlist(self, fleet: Fleet) -> None:
        super().enlist(fleet)
        self._rows = {client.id: row for row, client in enumerate(fleet.clients)}
