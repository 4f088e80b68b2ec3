"""What a server does with the mean update of its clients: the run's `server-optimizer`, for every algorithm whose global
model takes a step along that mean.

D is the mean (whatever the run's `aggregator` makes of the updates), t counts server steps from 1:

sgd (1):       w <- w + eta D
momentum (2):  v <- beta v + D,   w <- w + eta v                          (FedAvgM, Hsu et al. 2019, arXiv 1909.06335)
adaptive (3):  m <- beta1 m + (1 - beta1) D,   w <- w + eta m / (sqrt(v) + tau)     (Reddi et al. 2021, arXiv 2003.00295)
  adagrad (4): v <- v + D^2
  adam (5):    v <- beta2 v + (1 - beta2) D^2
  yogi (6):    v <- v - (1 - beta2) D^2 sign(v - D^2)
correct (7):   eta <- eta sqrt(1 - beta2^t) / (1 - beta1^t)

| symbol | meaning                              | name here                                |
| ------ | ------------------------------------ | ---------------------------------------- |
| eta    | server step size                     | `server-optimizer.lr`                    |
| m, v   | moments, entry by entry              | `first`, `second` (`velocity` in (2)) of `GlobalState.moments` |
| tau    | the smallest denominator             | `server-optimizer.tau`                   |
| v_0    | v before the first step, tau^2       | `server-optimizer.v0`                    |

The signs are those of updates: D points from the old model to the clients', so it is added. (3) is Algorithm 2 of the
paper, without bias correction; the authors' code starts at v_0 = 0 and corrects, which is `v0=0` with `correct=true`.
Only parameters take such a step: buffers (BatchNorm statistics) are averaged. An algorithm that shares a part of the
model has moments of that part.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from fedsim.config import FractionBelowOne, NonNegativeFloat, PositiveFloat, RunConfig
from fedsim.weights import Vec

Moments = dict[str, Vec]  # by name; empty before the first step

SERVER_OPTIMIZERS = {
    "sgd": "fedsim.server_optimizers:SGD",
    "momentum": "fedsim.server_optimizers:Momentum",
    "adagrad": "fedsim.server_optimizers:Adagrad",
    "adam": "fedsim.server_optimizers:Adam",
    "yogi": "fedsim.server_optimizers:Yogi",
}


class ServerOptimizer(ABC):
    """Made from its parameters; what it remembers between steps are the moments."""

    params: ClassVar[type[Any]]

    def __init__(self, params: Any) -> None:
        self._params = params

    @property
    def model_rate(self) -> float:
        """How far the global model moves to the mean of the clients' models; 0: its steps are not of that kind."""
        return 0.0

    @property
    def plain(self) -> bool:
        """Whether a step is the mean update itself, as in algorithms without a server optimizer."""
        return self.model_rate == 1

    @abstractmethod
    def __call__(self, parameters: Vec, mean: Vec, moments: Moments, t: int) -> Vec:
        """The parameters after step t, the first of which is 1, along the mean update. Renews `moments`."""


@dataclass(frozen=True)
class SGDParams:
    lr: PositiveFloat = 1.0  # eta, server step size


class SGD(ServerOptimizer):
    """a step along the mean update; with lr=1 the global model becomes the mean"""

    params = SGDParams

    @property
    def model_rate(self) -> float:
        return float(self._params.lr)

    def __call__(self, parameters: Vec, mean: Vec, moments: Moments, t: int) -> Vec:
        return np.asarray(parameters + np.float32(self._params.lr) * mean)  # (1)


@dataclass(frozen=True)
class MomentumParams:
    lr: PositiveFloat = 1.0  # eta, server step size
    beta: FractionBelowOne = 0.9  # share of the velocity that stays


class Momentum(ServerOptimizer):
    """a step along a decaying sum of the mean updates (Hsu et al. 2019)"""

    params = MomentumParams

    def __call__(self, parameters: Vec, mean: Vec, moments: Moments, t: int) -> Vec:
        before = moments.get("velocity", np.float32(0))
        moments["velocity"] = np.float32(self._params.beta) * before + mean  # (2)
        return np.asarray(parameters + np.float32(self._params.lr) * moments["velocity"])


@dataclass(frozen=True)
class AdagradParams:
    lr: PositiveFloat = 0.1  # eta, server step size
    beta1: FractionBelowOne = 0.0  # share of the first moment that stays
    tau: PositiveFloat = 0.001  # the smallest denominator
    v0: NonNegativeFloat | None = None  # second moment before the first step; none: tau^2


class Adagrad(ServerOptimizer):
    """steps divided by the root of the sum of squares, entry by entry (Reddi et al. 2021)"""

    params = AdagradParams

    def __call__(self, parameters: Vec, mean: Vec, moments: Moments, t: int) -> Vec:
        params, start = self._params, self._params.tau**2 if self._params.v0 is None else self._params.v0
        first, second = moments.get("first", np.zeros_like(mean)), moments.get("second", np.full_like(mean, start))
        moments["first"] = first = params.beta1 * first + (1 - params.beta1) * mean  # (3)
        moments["second"] = second = self.second(second, mean * mean)
        return np.asarray(parameters + self.rate(t) * first / (np.sqrt(second) + params.tau))

    def second(self, v: Vec, squares: Vec) -> Vec:
        """v after a step with these D^2."""
        return np.asarray(v + squares)  # (4)

    def rate(self, t: int) -> float:
        """eta of step t."""
        return float(self._params.lr)


@dataclass(frozen=True)
class AdamParams(AdagradParams):
    beta1: FractionBelowOne = 0.9  # share of the first moment that stays
    beta2: FractionBelowOne = 0.99  # share of the second moment that stays
    correct: bool = False  # bias correction


class Adam(Adagrad):
    """steps divided by the root of a decaying mean of squares, entry by entry (Reddi et al. 2021)"""

    params = AdamParams

    def second(self, v: Vec, squares: Vec) -> Vec:
        return np.asarray(self._params.beta2 * v + (1 - self._params.beta2) * squares)  # (5)

    def rate(self, t: int) -> float:
        params = self._params
        factor = sqrt(1 - params.beta2**t) / (1 - params.beta1**t) if params.correct else 1.0  # (7)
        return float(params.lr * factor)


class Yogi(Adam):
    """Adam whose second moment changes by no more than the squares, in either direction (Reddi et al. 2021)"""

    def second(self, v: Vec, squares: Vec) -> Vec:
        return np.asarray(v - (1 - self._params.beta2) * squares * np.sign(v - squares))  # (6)


def server_optimizer_of(config: RunConfig) -> ServerOptimizer:
    """The run's server optimizer."""
    made: ServerOptimizer = config.part("server-optimizer")(config.params("server-optimizer"))
    return made
