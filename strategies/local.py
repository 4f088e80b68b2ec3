"""Local training: every client alone (also called Separate, or SOLO: `solo`), the baseline of personalized learning.

Client (1):  w_k <- LocalSGD(w_k; D_k), from the initial model of its architecture

The server sends no model and receives none. The client's own model is both the `personal` and the `local` one; there is
no global model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsim.algorithm import Algorithm, ServerStrategy
from fedsim.config import NoParams
from fedsim.payload import Arrival, Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.weights import Weights


@dataclass
class Nothing:
    """The server's state."""


class Local(ServerStrategy[NoParams, Nothing]):
    """Sends jobs without a model."""

    no_newcomers = ""

    def init(self, model: Weights, fleet: Fleet) -> Nothing:
        return Nothing()

    def instruct(self, state: Nothing, client: int, train: bool) -> Downlink:
        return Downlink(shared=False)

    def update(self, state: Nothing, arrivals: Sequence[Arrival]) -> Nothing:
        return state

    def expects(self) -> Mapping[str, Spec]:
        return {}


def alone(name: str, about: str) -> Algorithm[NoParams]:
    return Algorithm(name, about, NoParams, Local, client="fedsim.clients.local:LocalOnly", common=None)


LOCAL = alone("local", "every client trains alone")
SOLO = alone("solo", 'every client trains alone: `local` under the name of "Rethinking Data Heterogeneity in FL"')
