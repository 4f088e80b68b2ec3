"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al. 2020, arXiv 1910.06378).

Client (1):  y <- y - eta_l * (g_i(y) - c_i + c), K steps from y = x
       (2):  option 1:  c_i+ = gradient of all local data at x
             option 2:  c_i+ = c_i - c + (x - y) / (eta_l * a),   a = sum of the steps' weights, K without momentum
             sends dy = y - x and dc = c_i+ - c_i
Server (3):  x <- x + (eta_g / |S|) * sum_{i in S} dy_i
       (4):  c <- c + (1/N) * sum_{i in S} dc_i = c + (|S|/N) * mean(dc)

| symbol | meaning                                 | name here                              |
| ------ | --------------------------------------- | -------------------------------------- |
| x, c   | global model and control variate        | `State.theta`, `State.control`         |
| c_i    | control variate of client i, 0 at first | `control` in the client's memory       |
| dy, dc | what a client sends                     | `delta`, `control` of the uplink       |
| S, N   | clients whose results arrived, everyone | `arrivals`, `fleet`                    |
| eta_g  | server step size                        | `Params.eta`                           |

Momentum rho, which the paper does not have, makes a gradient count 1 + rho + ... + rho^(r-1) times if it has r steps to
go. With a = the sum of that, sum_{j<K} (K - j) rho^j, option 2 stays a mean of the gradients on the way; with the usual
K it overestimates them up to 1/(1 - rho) times, and diverges. A result that is lost or dropped (pace=deadline) moves
its c_i but not c, as in any federation whose clients keep state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsim.algorithm import Algorithm, GlobalState, GlobalStrategy
from fedsim.config import positive
from fedsim.errors import ConfigError
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.vector import Vec, weighted_mean, weighted_sum


@dataclass(frozen=True)
class Params:
    option: int = 2  # 1 costs a pass over the local data, 2 costs nothing
    eta: float = 1.0

    def __post_init__(self) -> None:
        positive("scaffold.eta", self.eta)
        if self.option not in (1, 2):
            raise ConfigError(f"scaffold.option must be 1 or 2, not {self.option}")


@dataclass
class State(GlobalState):
    control: Vec = field(default_factory=lambda: np.zeros(0, np.float32))


class Scaffold(GlobalStrategy[Params]):
    """FedAvg whose clients' drift is corrected."""

    def init(self, theta: Vec, fleet: Fleet) -> State:
        return State(**vars(super().init(theta, fleet)), control=np.zeros_like(theta))

    def instruct(self, state: GlobalState, client: int) -> Downlink:
        assert isinstance(state, State)
        return Downlink({**super().instruct(state, client).vectors, "control": state.control})

    def update(self, state: GlobalState, arrivals: Sequence[Arrival]) -> State:
        assert isinstance(state, State)
        uplinks = [a.uplink.vectors for a in arrivals]
        theta = state.theta + weighted_sum(
            [u["delta"] for u in uplinks], [self.params.eta / len(uplinks)] * len(uplinks)
        )
        control = state.control + weighted_sum([u["control"] for u in uplinks], [1 / len(self.fleet)] * len(uplinks))
        if state.buffers.size:
            state.buffers = weighted_mean([u["buffers"] for u in uplinks], [1] * len(uplinks))
        return State(**vars(self.advance(state, theta)), control=control)  # (3), (4)

    def expects(self) -> Mapping[str, int]:
        return {**super().expects(), "control": self.fleet.layout.size}


SCAFFOLD = Algorithm(
    name="scaffold",
    about="control variates against client drift (Karimireddy et al. 2020)",
    params=Params,
    server=Scaffold,
    client="clients.controlled:Controlled",
)
