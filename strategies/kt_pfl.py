"""KT-pFL: personal knowledge transfer over public data (Zhang et al. 2021, arXiv 2111.02862).

Target (1):  q_n(x) = sum_m c_nm s_m(x), with s_m(x) = softmax(z_m(x) / T), for every public sample x
Client (2):  w_n <- w_n - eta_1 * grad CE(w_n; own data)
       (3):  w_n <- w_n - eta_2 * grad mean_x KL(q_n(x) || s_n(x)), q_n fixed, over public data
Server (4):  c_n <- c_n - eta_3 * lambda * (D_n / D) * grad_{c_n} mean_x KL(q_n(x) || s_n(x)) - 2 eta_3 rho (c_n - 1/N),
             then c_n <- the nearest point with c_nm >= 0, sum_m c_nm = 1

| symbol  | meaning                                             | name here                               |
| ------- | --------------------------------------------------- | --------------------------------------- |
| c_nm    | knowledge coefficient: how much n learns from m     | `State.coefficients[n, m]`              |
| s_m     | softened predictions of client m on the public data | `State.predictions[row]`, samples x C   |
| q_n     | personal target of client n                         | `targets` of the downlink               |
| T       | temperature                                         | `temperature`                           |
| lambda, rho, eta_3 | weight of the distance, pull to equal coefficients, step | `lam`, `rho`, `coef_lr`      |
| D_n / D | share of client n in all training samples           | `Client.train`                          |

No weights are exchanged, so models may differ: a round moves the predictions of all public samples, samples x C floats,
down and up. One exchange per round, in the authors' order: a job distills the target it received (3), trains (2), and
predicts the public data, once; before anything was heard there is no target. An absent client's last predictions count;
a client that never took part receives their mean; a coefficient of a client that was never heard from is left out of
(1) and has the mean gradient in (4). c is recorded as the matrix `knowledge`; row n are the weights used by n (the
paper's c_mn). Equal coefficients give everyone the same target (FedMD). There is no global model. The server needs no
torch: softmax and KL have closed gradients.
`coef-update=official` is the rule of the authors' code: the gradient of mean (q_n - s_n)^2 + rho mean (c_n - 1/N)^2,
scaled by a power of 5 so that its mean size is near 0.01, and c_n <- softmax(5 (c_n - gradient)).
Deviations: KL(teacher || student) as a mean over samples (the code's mean is over the classes as well). All public
samples in every round, so that the last predictions of absent clients fit (the code draws 3,000 of them anew). T = 10
as in the code; eta_3 and lambda are ours, none are published. All clients of one architecture start from the same
initial model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.client_table import ClientTable, client_table
from fedsim.config import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.payload import Array, Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.simplex import onto_simplex
from fedsim.weights import Weights, blocks

Matrix = NDArray[np.float64]
LEAST = 1e-8  # a probability in a logarithm


@dataclass(frozen=True)
class Params:
    temperature: PositiveFloat = 10.0  # T, of the predictions
    distill_epochs: NonNegativeInt = 1  # epochs of distillation over the public data per job
    distill_batch: PositiveInt = 256  # public samples in a mini-batch of distillation
    distill_lr: PositiveFloat | None = None  # eta_2, learning rate of distillation; none: the run's lr
    coef_update: Literal["kl", "official"] = "kl"  # gradient of the coefficients, see (4)
    coef_lr: NonNegativeFloat = 0.1  # eta_3, step size of the coefficients
    lam: NonNegativeFloat = 1.0  # lambda, weight of the distance of predictions in their gradient
    rho: NonNegativeFloat = 0.7  # pull of the coefficients towards 1/N


@dataclass
class State:
    predictions: ClientTable  # s_m: a row per client holds public samples x classes
    heard: Array  # which clients have sent predictions
    coefficients: Matrix  # c


class KtPfl(ServerStrategy[Params, State]):
    """Keeps every client's last predictions, mixes them for each client, and learns the coefficients of the mixture."""

    no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> State:
        count = len(fleet)
        table = client_table(self.config, np.zeros(self.config.public * fleet.classes, np.float32), count)
        return State(table, np.zeros(count, bool), np.full((count, count), 1 / count))

    def instruct(self, state: State, client: int, train: bool) -> Downlink:
        if not train or not state.heard.any():
            return Downlink(shared=False)
        return self._targets(state, known_shares(state.coefficients[[self.fleet.row(client)]], state.heard)[0])

    def newcomer(self, state: State, client: int) -> Downlink:
        return self._targets(state, state.heard / state.heard.sum())

    def _targets(self, state: State, shares: Matrix) -> Downlink:
        target = shares.astype(np.float32) @ state.predictions  # (1)
        return Downlink(arrays={"targets": target.reshape(-1, self.fleet.classes)}, shared=False)

    def update(self, state: State, arrivals: Sequence[Arrival]) -> State:
        rows = [self.fleet.row(arrival.client) for arrival in arrivals]
        for row, arrival in zip(rows, arrivals, strict=True):
            state.predictions[row] = arrival.uplink.arrays["predictions"].reshape(-1)
        state.heard[rows] = True
        state.coefficients[rows] = self._step(state, rows)
        return state

    def _step(self, state: State, rows: Sequence[int]) -> Matrix:
        """The next coefficients of these clients."""
        params, own, even = self.params, state.coefficients[rows], 1 / len(self.fleet)
        gradient = self._gradient(state, rows)
        if params.coef_update == "official":
            gradient += 2 * params.rho * (own - even) / len(self.fleet)
            size = np.maximum(np.abs(gradient).mean(), 1e-300)
            powers = np.exp(5 * (own - gradient * 5.0 ** np.round(np.log(0.01 / size) / np.log(5))))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        samples = np.array([client.train for client in self.fleet.clients])
        shares = (samples[rows] / samples.sum())[:, None]
        step = params.coef_lr * params.lam * shares * gradient + 2 * params.coef_lr * params.rho * (own - even)
        return onto_simplex(own - step)  # (4)

    def _gradient(self, state: State, rows: Sequence[int]) -> Matrix:
        """Of the distance between target and own predictions in the coefficients: rows x clients."""
        shares, classes = known_shares(state.coefficients[rows], state.heard), self.fleet.classes
        total = np.zeros_like(shares)
        for block in blocks(state.predictions.shape[1]):
            known = state.predictions[:, block].astype(np.float64)
            target, own = shares @ known, known[rows]
            if self.params.coef_update == "official":
                slope = 2 * (target - own) / classes
            else:
                slope = np.log(np.maximum(target, LEAST)) - np.log(np.maximum(own, LEAST)) + 1
            total += slope @ known.T
        total /= self.config.public
        mean = total[:, state.heard].mean(axis=1, keepdims=True)
        return np.where(state.heard, total, mean)

    def matrices(self, state: State) -> Mapping[str, NDArray[Any]]:
        return {"knowledge": state.coefficients}

    def expects(self) -> Mapping[str, Spec]:
        return {"predictions": Spec((self.config.public, self.fleet.classes))}


def known_shares(coefficients: Matrix, heard: Array) -> Matrix:
    """Rows of coefficients over the clients that were heard from, with sum 1; equal ones if a row has none of them."""
    shares = coefficients * heard
    totals = shares.sum(axis=1, keepdims=True)
    return np.where(totals > 0, shares / np.where(totals > 0, totals, 1), heard / heard.sum())


KT_PFL = Algorithm(
    name="kt-pfl",
    about="clients learn from a personal mixture of all predictions on public data (Zhang et al. 2021)",
    params=Params,
    server=KtPfl,
    client="fedsim.clients.kt_pfl:KtPflClient",
    common=None,
    public=("clients",),
    targets="labels",
)
