"""HeurFedAMP: FedAMP with cosines instead of distances, for deep nets (Huang et al. 2021, arXiv 2007.03797, section 5).

Server (1):   u_i = sum_j xi_ij w_j                                                 (the paper's (5))
Weights (8):  xi_ij = (1 - xi_ii) * exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h)) for j != i
Client (6):   as in `strategies.fedamp`, with lambda/alpha given as one number, since neither occurs elsewhere

| symbol       | meaning                                      | name here            |
| ------------ | -------------------------------------------- | -------------------- |
| xi_ii        | weight of a client's own model               | `Params.self_weight` |
| sigma        | how much a larger cosine counts              | `Params.sigma`       |
| lambda/alpha | weight of the proximal term                  | `Params.pull`        |

sigma: auto: sharpness / (standard deviation of the cosines of all pairs), in every round. This is ours, and the reason is:
models from one start have cosines between 0.99 and 1, so the usual sigma of tens is blind to their differences and
HeurFedAMP is FedAvg. A number or a schedule (see `strategies.schedule`) is taken as it is. First round: as in FedAMP.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsim.algorithm import Algorithm
from fedsim.config import at_least, one_of, positive
from fedsim.errors import ConfigError
from fedsim.similarity import Matrix, cosines, gram, off_diagonal
from strategies.fedamp import STARTS
from strategies.message_passing import MessagePassing, State
from strategies.schedule import Schedule


@dataclass(frozen=True)
class Params:
    sigma: str = "auto"  # auto | X | X:F:N
    sharpness: float = 1.0  # with sigma = auto
    self_weight: float = 0.0  # xi_ii; 0: 1/m for m clients
    pull: float = 0.1  # lambda/alpha
    start: str = "cloud"  # where clients start: cloud | own

    def __post_init__(self) -> None:
        Schedule.parse("heurfedamp.sigma", self.sigma, ("auto",))
        positive("heurfedamp.sharpness", self.sharpness)
        at_least("heurfedamp.pull", self.pull, 0)
        one_of("heurfedamp.start", self.start, STARTS)
        if not 0 <= self.self_weight <= 1:
            raise ConfigError(f"heurfedamp.self-weight must be from 0 to 1, not {self.self_weight}")


class HeurFedAMP(MessagePassing[Params]):
    """Listens to those whose models point the same way."""

    def weigh(self, state: State, rows: NDArray[np.int64]) -> Matrix:
        found = cosines(gram(state.models))[np.ix_(rows, rows)]
        given = Schedule.parse("heurfedamp.sigma", self.params.sigma, ("auto",))
        spread = float(np.std(off_diagonal(found))) or 1.0  # all alike: any scale will do
        state.sigma = self.params.sharpness / spread if given is None else given.at(state.step - 1)
        state.pull[rows] = self.params.pull
        return softmax_rows(state.sigma * found, self.params.self_weight or 1 / len(rows))


def softmax_rows(scores: Matrix, own: float) -> Matrix:
    """(8): each row is `own` on the diagonal, and the softmax of the other scores shares what is left."""
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    xi: Matrix = (1 - own) * weights / weights.sum(axis=1, keepdims=True)
    np.fill_diagonal(xi, own)
    return xi


HEURFEDAMP = Algorithm(
    name="heurfedamp",
    about="FedAMP with weights from the cosines of models (Huang et al. 2021)",
    params=Params,
    server=HeurFedAMP,
    client="clients.attentive:Attentive",
)
