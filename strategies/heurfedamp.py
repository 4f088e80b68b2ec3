"""HeurFedAMP: FedAMP with cosines instead of distances, for deep networks (section 6 of Huang et al. 2021, arXiv
2007.03797).

Server (5):   u_i = sum_j xi_ij w_j
Weights (8):  xi_ij = (1 - xi_ii) * exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h)) for j != i
Client (6):   as in `fedsim.strategies.fedamp`, with lambda/alpha given as one number, since neither occurs elsewhere

| symbol       | meaning                                      | name here                      |
| ------------ | -------------------------------------------- | ------------------------------ |
| w_i, u_i     | model and cloud model of client i            | `State.models`, `State.clouds` |
| xi_ii        | weight of a client's own model               | `Params.self_weight`           |
| sigma        | scale of the cosines                         | `Params.sigma`                 |
| lambda/alpha | weight of the proximal term                  | `Params.pull`                  |

sigma: auto: sharpness / (standard deviation of the cosines of all pairs), in every round; else a number or a schedule
(`fedsim.schedule`). `auto` is ours: models from one start have cosines between 0.99 and 1, so with a sigma of tens all
weights are nearly equal, and HeurFedAMP is FedAvg. The first round is plain local training, as in FedAMP.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.config import Fraction, NonNegativeFloat, PositiveFloat
from fedsim.schedule import Schedule
from fedsim.similarity import Matrix, cosines, gram, off_diagonal
from fedsim.strategies.fedamp import Start
from fedsim.strategies.message_passing import MessagePassing, State


@dataclass(frozen=True)
class Params:
    sigma: str = "auto"  # scale of the cosines: auto | X | X:F:N
    sharpness: PositiveFloat = 1.0  # sigma = auto is multiplied by it
    self_weight: Fraction = 0.0  # weight xi_ii of a client's own model; 0: 1/m for m clients
    pull: NonNegativeFloat = 0.1  # lambda / alpha, weight of the proximal term
    start: Start = "cloud"  # where local training starts

    def __post_init__(self) -> None:
        Schedule.parse("heurfedamp.sigma", self.sigma, ("auto",))


class HeurFedAMP(MessagePassing[Params]):
    """Weights increase with the cosine between two models."""

    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        found = cosines(gram(state.models))[np.ix_(rows, rows)]
        given = Schedule.parse("heurfedamp.sigma", self.params.sigma, ("auto",))
        spread = float(np.std(off_diagonal(found))) or 1.0  # all cosines are equal: any scale will do
        state.sigma = self.params.sharpness / spread if given is None else given.at(state.step - 1)
        state.pull[rows] = self.params.pull
        return softmax_rows(state.sigma * found, self.params.self_weight or 1 / len(rows))


def softmax_rows(scores: Matrix, own: float) -> Matrix:
    """(8): `own` on the diagonal; off it each row is 1 - own times the softmax of the other scores."""
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    xi: Matrix = (1 - own) * weights / weights.sum(axis=1, keepdims=True)
    np.fill_diagonal(xi, own)
    return xi


HEURFEDAMP = Algorithm(
    name="heurfedamp",
    about="FedAMP with weights from the cosines between models (Huang et al. 2021)",
    params=Params,
    server=HeurFedAMP,
    client="fedsim.clients.fedamp:FedAMPClient",
)
