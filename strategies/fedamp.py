"""FedAMP: federated attentive message passing (Huang et al. 2021, arXiv 2007.03797).

Objective (1):  min_W  sum_i F_i(w_i) + lambda * sum_{i<j} A(||w_i - w_j||^2)
Server (5):     u_i = xi_ii w_i + sum_{j != i} xi_ij w_j,   the step W - alpha_k * grad A(W), written client by client
Weights (7):    xi_ij = alpha_k * A'(||w_i - w_j||^2) for j != i,   xi_ii = 1 - sum_{j != i} xi_ij
Client (6):     w_i = argmin_w F_i(w) + lambda/(2 alpha_k) * ||w - u_i||^2,   by local SGD started at u_i

| symbol  | meaning                               | name here                                     |
| ------- | ------------------------------------- | --------------------------------------------- |
| W, U    | models and cloud models of everyone   | `State.models`, `State.clouds`                |
| xi      | who listens to whom                   | `State.xi`                                    |
| A       | attention-inducing function           | `Params.attention`, see `strategies.attention`|
| sigma   | its scale, in squared distances       | `Params.sigma`                                |
| alpha_k | step size of round k                  | `Params.alpha`                                |
| lambda  | weight of the coupling                | `Params.lam` (`lambda` is a word of Python)   |

sigma:   auto: the median squared distance of all pairs, over `sharpness`, in every round; first: that of the first message
         passing, kept, so that (1) stays one objective; else a number, or a schedule as in `strategies.schedule`.
alpha_k: auto: for each client the step after which the others have `share` of its cloud model; bound: share * sigma/(m-1)
         for everyone, which keeps rows convex whatever the distances are; theorem: lambda/sqrt(K) for K rounds, the rule
         of the convergence theorems; else a number or a schedule. Where others would get more than 1 - min_self of a
         cloud model, their weights are scaled down to that, with a warning.
lambda:  auto: pull * alpha_k, so that the proximal term of (6) weighs pull/2 whatever the scale of the distances is.

Deviations: all clients start from one model, where all distances are 0: the first round is plain local training, as in
effect it is with the paper's independent starts. The paper does not say where (6) starts: at u_i, or with start = own at
the client's own model. Its step sizes are in an appendix that is not public: `auto` is ours, for models of any size.

Why not the plainest scale-free choice, sigma = first with sharpness 1 and alpha = bound: two models at distance 0 then weigh
at most e times what two at the median distance do, and most pairs are of different groups. So groups mix, draw nearer to
each other, and melt: on Fashion-MNIST in 5 groups a client's own group weighs 2.7 times the others at first, 1.1 times
after 10 rounds. A smaller sigma keeps groups apart but, with one alpha for all, leaves alone the clients whose models travel
far, those with much data. A step size per client is a step on (1) in another metric: each block of (5) at its own pace.
"""

import warnings
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.config import at_least, one_of, positive
from fedsim.errors import ConfigError
from fedsim.similarity import Matrix, off_diagonal, squared_distances
from strategies.attention import ATTENTIONS
from strategies.message_passing import MessagePassing, State
from strategies.schedule import Schedule

STARTS = ("cloud", "own")
SIGMAS = ("auto", "first")
ALPHAS = ("auto", "bound", "theorem")


@dataclass(frozen=True)
class Params:
    attention: str = "exponential"  # exponential | scad | mcp
    sigma: str = "auto"  # auto | first | X | X:F:N
    alpha: str = "auto"  # auto | bound | theorem | X | X:F:N
    lam: str = "auto"  # lambda: auto | X
    sharpness: float = 3.0  # with sigma = auto or first
    share: float = 0.9  # of a cloud model that comes from others with alpha = auto, or may with alpha = bound
    pull: float = 0.1  # lambda/alpha with lam = auto
    min_self: float = 0.0  # lowest xi_ii
    start: str = "cloud"  # where clients start: cloud | own

    def __post_init__(self) -> None:
        one_of("fedamp.attention", self.attention, ATTENTIONS)
        one_of("fedamp.start", self.start, STARTS)
        at_least("fedamp.pull", self.pull, 0)
        for name in ("share", "min_self"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"fedamp.{name.replace('_', '-')} must be from 0 to 1, not {getattr(self, name)}")
        positive("fedamp.share", self.share)
        positive("fedamp.sharpness", self.sharpness)
        Schedule.parse("fedamp.sigma", self.sigma, SIGMAS)
        Schedule.parse("fedamp.alpha", self.alpha, ALPHAS)
        if Schedule.parse("fedamp.lam", self.lam, ("auto",)) is None and self.alpha == "theorem":
            raise ConfigError("fedamp.alpha=theorem is lambda/sqrt(K): set fedamp.lam to a number")


class FedAMP(MessagePassing[Params]):
    """Listens to those whose models are near."""

    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        params = self.params
        distances = squared_distances(state.models)[np.ix_(rows, rows)]
        state.sigma = self._sigma(state, distances)
        slopes = ATTENTIONS[params.attention].slope(distances / state.sigma) / state.sigma
        np.fill_diagonal(slopes, 0)
        alpha, lam = self._alpha(state, slopes), Schedule.parse("fedamp.lam", params.lam, ("auto",))
        state.pull[rows] = params.pull if lam is None else lam.at(state.step - 1) / alpha  # (6)
        return convex(alpha[:, None] * slopes, params.min_self)  # (7)

    def _sigma(self, state: State, distances: Matrix) -> float:
        given = Schedule.parse("fedamp.sigma", self.params.sigma, SIGMAS)
        if given is not None:
            return given.at(state.step - 1)
        if self.params.sigma == "first" and state.sigma:
            return state.sigma
        return float(np.median(off_diagonal(distances))) / self.params.sharpness or 1.0  # all equal: any scale will do

    def _alpha(self, state: State, slopes: Matrix) -> NDArray[np.float64]:
        """One step size per client."""
        params, count = self.params, len(slopes)
        given = Schedule.parse("fedamp.alpha", params.alpha, ALPHAS)
        if given is not None:
            return np.full(count, given.at(state.step - 1))
        if params.alpha == "theorem":
            return np.full(count, float(params.lam) / sqrt(self.config.rounds))
        bound = np.full(count, params.share * state.sigma / (count - 1))
        near = slopes.sum(axis=1)
        return bound if params.alpha == "bound" else np.divide(params.share, near, out=bound, where=near > 0)


def convex(others: Matrix, min_self: float = 0.0) -> Matrix:
    """Weights from those of the others: each row sums to 1, and keeps at least `min_self` for itself."""
    sums = others.sum(axis=1)
    if (sums > 1 - min_self + 1e-9).any():
        warnings.warn(
            "fedamp.alpha is so large that others would get more than a whole cloud model: scaled down", stacklevel=2
        )
        others = others * np.minimum(1, (1 - min_self) / np.maximum(sums, 1e-30))[:, None]
    xi = others.copy()
    np.fill_diagonal(xi, 1 - others.sum(axis=1))
    return xi


FEDAMP = Algorithm(
    name="fedamp",
    about="personal cloud models, mixed from the clients with similar models (Huang et al. 2021)",
    params=Params,
    server=FedAMP,
    client="clients.attentive:Attentive",
)
