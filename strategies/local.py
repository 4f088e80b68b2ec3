"""Local training: every client alone (also called Separate or SOLO). The baseline that federation has to beat.

Client (1):  w_k <- LocalSGD(w_k; D_k), from the common initial model

The server only keeps time: it sends no model and receives none. The client's own model is both the `personal` and the
`local` one; there is no global model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import NoParams
from fedsim.fleet import Fleet
from fedsim.payload import Arrival, Downlink
from fedsim.vector import Vec


@dataclass
class Nothing:
    """The server's state."""


class Local(ServerStrategy[NoParams, Nothing]):
    """Calls the rounds, nothing else."""

    def init(self, theta: Vec, fleet: Fleet) -> Nothing:
        return Nothing()

    def instruct(self, state: Nothing, client: int) -> Downlink:
        return Downlink(shared=False)

    def update(self, state: Nothing, arrivals: Sequence[Arrival]) -> Nothing:
        return state

    def expects(self) -> Mapping[str, int]:
        return {}


LOCAL = Algorithm("local", "every client trains alone", NoParams, Local, client="clients.local_only:LocalOnly")
