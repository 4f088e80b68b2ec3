"""FedAMP: federated attentive message passing (Huang et al. 2021, arXiv 2007.03797).

Objective (1):  min_W  sum_i F_i(w_i) + lambda * sum_{i<j} A(||w_i - w_j||^2)
Server (5):     u_i = xi_ii w_i + sum_{j != i} xi_ij w_j,   the step W - alpha_k * grad A(W), written client by client
Weights (7):    xi_ij = alpha_k * A'(||w_i - w_j||^2) for j != i,   xi_ii = 1 - sum_{j != i} xi_ij
Client (6):     w_i = argmin_w F_i(w) + lambda/(2 alpha_k) * ||w - u_i||^2,   by local SGD started at u_i

| symbol  | meaning                                        | name here                                              |
| ------- | ---------------------------------------------- | ------------------------------------------------------ |
| W, U    | models and cloud models of all clients         | `State.models`, `State.clouds`                         |
| xi      | weights of the models in the cloud models      | `State.xi`                                             |
| A       | attention-inducing function                    | `Params.attention`, see `fedsim.strategies.attention`  |
| sigma   | its scale, in squared distances                | `Params.sigma`                                         |
| alpha_k | step size of round k                           | `Params.alpha`                                         |
| lambda  | weight of the coupling                         | `Params.lam` (`lambda` is a keyword of Python)         |

sigma:   auto: the median squared distance of all pairs, divided by `sharpness`, in every round; first: the value of
         the first message passing, kept, so that (1) stays one objective; else a number or a schedule
         (`fedsim.schedule`).
alpha_k: auto: for each client the step size that gives the other clients a weight of `share` in its cloud model;
         bound: share * sigma/(m-1) for all clients, which keeps rows convex for any distances; theorem: lambda/sqrt(K)
         for K rounds, the rule of the convergence theorems; else a number or a schedule. Where the weights of the
         others exceed 1 - min_self, they are scaled down to that, with a warning.
lambda:  auto: pull * alpha_k, so that the proximal term of (6) has the weight pull/2 at any scale of the distances;
         else a number or a schedule.

Deviations: all clients start from one model, where all distances are 0: the first round is plain local training, which
is what the paper's independent starts amount to. The paper does not say where (6) starts: at u_i, or with start = own
at the client's own model. Its step sizes are in an appendix that is not public: `auto` is ours, for models of any
size.

The simplest scale-free choice, sigma = first with sharpness 1 and alpha = bound, does not separate groups of clients:
two models at distance 0 have at most e times the weight of two at the median distance, and most pairs belong to
different groups. The groups' models then move towards each other: on Fashion-MNIST in 5 groups, a client gives models
of its own group 2.7 times the weight of the others in the first round, and 1.1 times after 10 rounds. A smaller sigma
separates the groups, but with one alpha for all, clients whose models move far (those with much data) mix with no
other client. A step size per client is a step on (1) in another metric, in which each block of (5) has its own step
size.
"""

import warnings
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.config import Fraction, NonNegativeFloat, PositiveFloat, PositiveFraction
from fedsim.errors import ConfigError
from fedsim.schedule import Schedule
from fedsim.similarity import Matrix, off_diagonal, squared_distances
from fedsim.strategies.attention import ATTENTIONS
from fedsim.strategies.message_passing import MessagePassing, State

Start = Literal["cloud", "own"]
SIGMAS = ("auto", "first")
ALPHAS = ("auto", "bound", "theorem")


@dataclass(frozen=True)
class Params:
    attention: Literal["exponential", "scad", "mcp"] = "exponential"  # function of the squared distance of two models
    sigma: str = "auto"  # scale of that distance: auto | first | X | X:F:N
    alpha: str = "auto"  # server step: auto | bound | theorem | X | X:F:N
    lam: str = "auto"  # lambda, weight of the proximal term: auto | X | X:F:N
    sharpness: PositiveFloat = 3.0  # the scale is divided by it, with sigma = auto or first
    share: PositiveFraction = (
        0.9  # weight of the others in a cloud model: with alpha = auto, at most with alpha = bound
    )
    pull: NonNegativeFloat = 0.1  # lambda / alpha, with lam = auto
    min_self: Fraction = 0.0  # lowest weight xi_ii of a client's own model
    start: Start = "cloud"  # where local training starts

    def __post_init__(self) -> None:
        Schedule.parse("fedamp.sigma", self.sigma, SIGMAS)
        Schedule.parse("fedamp.alpha", self.alpha, ALPHAS)
        if Schedule.parse("fedamp.lam", self.lam, ("auto",)) is None and self.alpha == "theorem":
            raise ConfigError("fedamp.alpha=theorem is lambda/sqrt(K): set fedamp.lam to a number")


class FedAMP(MessagePassing[Params]):
    """Weights decrease with the distance between two models."""

    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        params = self.params
        distances = squared_distances(state.models)[np.ix_(rows, rows)]
        state.sigma = self._sigma(state, distances)
        slopes = ATTENTIONS[params.attention].slope(distances / state.sigma) / state.sigma
        np.fill_diagonal(slopes, 0)
        lam, alpha = self._lambda(state), self._alpha(state, slopes)
        state.pull[rows] = params.pull if lam is None else lam / alpha  # (6)
        return convex(alpha[:, None] * slopes, params.min_self)  # (7)

    def _sigma(self, state: State, distances: Matrix) -> float:
        given = Schedule.parse("fedamp.sigma", self.params.sigma, SIGMAS)
        if given is not None:
            return given.at(state.step - 1)
        if self.params.sigma == "first" and state.sigma:
            return state.sigma
        return (
            float(np.median(off_diagonal(distances))) / self.params.sharpness or 1.0
        )  # all models are equal: any scale will do

    def _lambda(self, state: State) -> float | None:
        """Of this round; None for auto."""
        given = Schedule.parse("fedamp.lam", self.params.lam, ("auto",))
        return None if given is None else given.at(state.step - 1)

    def _alpha(self, state: State, slopes: Matrix) -> NDArray[np.float64]:
        """One step size per client."""
        params, count = self.params, len(slopes)
        given = Schedule.parse("fedamp.alpha", params.alpha, ALPHAS)
        if given is not None:
            return np.full(count, given.at(state.step - 1))
        lam = self._lambda(state)
        if params.alpha == "theorem" and lam is not None:
            return np.full(count, lam / sqrt(self.config.rounds))
        bound = np.full(count, params.share * state.sigma / (count - 1))
        near = slopes.sum(axis=1)
        return bound if params.alpha == "bound" else np.divide(params.share, near, out=bound, where=near > 0)


def convex(others: Matrix, min_self: float = 0.0) -> Matrix:
    """xi from its entries off the diagonal: each row sums to 1, with at least `min_self` on the diagonal."""
    sums = others.sum(axis=1)
    if (sums > 1 - min_self + 1e-9).any():
        warnings.warn("fedamp.alpha is so large that the weights of the others exceed 1: scaled down", stacklevel=2)
        others = others * np.minimum(1, (1 - min_self) / np.maximum(sums, 1e-30))[:, None]
    xi = others.copy()
    np.fill_diagonal(xi, 1 - others.sum(axis=1))
    return xi


FEDAMP = Algorithm(
    name="fedamp",
    about="a cloud model for each client, mixed from similar models (Huang et al. 2021)",
    params=Params,
    server=FedAMP,
    client="fedsim.clients.fedamp:FedAMPClient",
)
