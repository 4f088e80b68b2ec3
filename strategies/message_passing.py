"""Message passing between clients through personal cloud models: what FedAMP and HeurFedAMP have in common.

Cloud (1):   u_i = sum_j xi_ij w_j, over the clients that have sent a model; the others get the initial model
Client (2):  w_i = argmin_w F_i(w) + (pull/2) ||w - u_i||^2, approximately, by local SGD

A subclass defines the weights xi. Models are rows of one matrix, so (1) is a product of matrices, written into the rows
of the cloud models block by block: the server needs two N x d matrices. Buffers stay with
the clients.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import P
from fedsim.client_table import ClientTable
from fedsim.payload import Arrival, Downlink
from fedsim.server.fleet import Fleet
from fedsim.similarity import Matrix
from fedsim.strategies.sent_models import SentModels
from fedsim.weights import Weights, blocks

PRODUCT = 1 << 25  # values in a block of columns of all models: pages of tables in files are read and written once


@dataclass
class State:
    models: ClientTable  # w_i: the model each client sent last
    clouds: ClientTable  # u_i: what each client receives
    xi: Matrix
    received: NDArray[np.bool_]  # whether a client has sent a model
    pull: NDArray[np.float64]  # per client, the weight of the proximal term in (2)
    sigma: float = 0.0  # the scale in use; 0: not set yet
    step: int = 0


class MessagePassing(SentModels[P, State]):
    """Keeps the last model of every client, and mixes a cloud model for each."""

    no_newcomers = "the model that a client sent decides which others are mixed into its own"

    @abstractmethod
    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        """xi among the clients `rows`; may set `pull` and `sigma`."""

    def init(self, model: Weights, fleet: Fleet) -> State:
        models, clouds = (self.table(model, of=2) for _ in range(2))
        return State(models, clouds, np.eye(len(fleet)), np.zeros(len(fleet), bool), np.zeros(len(fleet)))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        row = self.fleet.row(client)
        # a client that has not sent a model has pull 0: its first job is plain local training from the common start
        numbers = {"proximal": float(state.pull[row])}
        return Downlink({"model": Weights(state.clouds[row])}, numbers=numbers, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        self.store(state.models, arrivals)
        state.received[[self.fleet.row(arrival.client) for arrival in arrivals]] = True
        state.step += 1
        rows = np.flatnonzero(state.received)
        if len(rows) > 1:
            state.xi = np.eye(len(state.received))
            state.xi[np.ix_(rows, rows)] = self.weigh(state, rows)
        xi = state.xi.astype(np.float32)
        for block in blocks(state.models.shape[1], PRODUCT // len(xi)):
            np.matmul(xi, state.models[:, block], out=state.clouds[:, block])  # (1)
        return state

    def matrices(self, state: State) -> Mapping[str, NDArray[Any]]:
        return {"xi": state.xi}
