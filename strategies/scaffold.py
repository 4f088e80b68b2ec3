"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al. 2020, arXiv 1910.06378).

Client (1):  y <- y - eta_l * (g_i(y) - c_i + c), K steps from y = x
       (2):  option 1:  c_i+ = gradient of all local data at x
             option 2:  c_i+ = c_i - c + (x - y) / (eta_l * a),   a = sum of the steps' weights, K without momentum
             sends dy = y - x and dc = c_i+ - c_i
Server (3):  x <- x + (eta_g / |S|) * sum_{i in S} dy_i
       (4):  c <- c + (1/N) * sum_{i in S} dc_i = c + (|S|/N) * mean(dc)

| symbol | meaning                                 | name here                              |
| ------ | --------------------------------------- | -------------------------------------- |
| x, c   | global model and control variate        | `State.model`, `State.control`         |
| c_i    | control variate of client i, 0 at first | `control` in the client's state        |
| dy, dc | what a client sends                     | `uplink.weights["delta"]`, `uplink.arrays["control"]` |
| S, N   | clients whose results arrived, all      | `arrivals`, `fleet`                    |
| eta_g  | server step size                        | `Params.eta`                           |

With momentum rho, which the paper does not have, a gradient with r steps left counts 1 + rho + ... + rho^(r-1) times.
With a = the sum of these counts, sum_{j<K} (K - j) rho^j, option 2 is still a mean of the gradients along the way; with
a = K it overestimates them by a factor of up to 1/(1 - rho), and diverges. A result that is lost or dropped
(pace=deadline) changes its c_i but not c. (3) weighs clients equally, as the paper does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import PositiveFloat, RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Vec, Weights


@dataclass(frozen=True)
class Params:
    option: Literal[1, 2] = 2  # how control variates are made; 1 takes an extra pass over the local data
    eta: PositiveFloat = 1.0  # eta_g, server step size


@dataclass
class State(GlobalState):
    control: Vec = field(default_factory=lambda: np.zeros(0, np.float32))


class Scaffold(GlobalStrategy[Params]):
    """The mean of the updates of clients whose drift is corrected by control variates."""

    averages = optimizes = True

    def __init__(self, params: Params, config: RunConfig) -> None:
        super().__init__(params, config)
        if config.optimizer != "sgd" and params.option == 2:
            raise ConfigError("scaffold.option=2 reads gradients off SGD steps: use optimizer=sgd or scaffold.option=1")

    def init(self, model: Weights, fleet: Fleet) -> State:
        return State(model.copy(), control=np.zeros_like(model.parameters))

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        assert isinstance(state, State)
        return Downlink({"model": state.model}, {"control": state.control} if train else {})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        equal, count = [1.0] * len(arrivals), len(self.fleet)
        deltas = [a.uplink.weights["delta"].parameters for a in arrivals]
        after = self.stepped(state, self.aggregate(deltas, equal, [self.params.eta] * len(arrivals)))  # (3)
        share = len(arrivals) / count  # (4), whose mean may be a robust one
        control = state.control + self.aggregate(
            [a.uplink.arrays["control"] for a in arrivals], equal, [share] * len(equal)
        )
        model = Weights(after, self.mean_buffers(state, arrivals, equal))
        return State(**vars(self.advance(state, model)), control=control)

    def expects(self) -> Mapping[str, Spec]:
        return {**super().expects(), "control": Spec((self.fleet.layout.size,))}


SCAFFOLD = Algorithm(
    name="scaffold",
    about="control variates against client drift (Karimireddy et al. 2020)",
    params=Params,
    server=Scaffold,
    client="fedsim.clients.scaffold:ScaffoldClient",
    vectorizes=True,
)
