"""FedAvg on a part of the model; the other part never leaves the clients. What FedPer, FedRep, FedBABU, FedBN,
LG-FedAvg, FedGC and FedPAC have in common.

Server (1):  u <- u + sum_{k in S} (n_k / n_S) * delta_k, as FedAvg, over the shared part u alone
Client (2):  trains the whole model (u, b_k) with its private part b_k; sends delta_k = u_k - u, keeps b_k

The state of the server is the shared part, so a round moves no other values. There is no global model.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

from fedsim.algorithm import GlobalState
from fedsim.layout import Part
from fedsim.payload import Downlink, Spec
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


class SharedPart(FedAvg):
    """A subclass names the parts (see `Layout.part`) that stay with the clients."""

    averages_model = False

    @abstractmethod
    def private(self) -> Sequence[str]:
        """The names of the parts that are not exchanged; none: FedAvg, all: local training."""

    @cached_property
    def part(self) -> Part:
        """What is exchanged."""
        return ~self.fleet.layout.part(*self.private())

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        return GlobalState(model.only(self.part))

    def instruct(self, state: GlobalState, client: int, train: bool) -> Downlink:
        return Downlink({"shared": state.model}, numbers={"private": ",".join(self.private())}, shared=False)

    def expects(self) -> Mapping[str, Spec]:
        return {"delta": Spec.weights(self.fleet.layout, part=self.part)}

    def global_model(self, state: GlobalState) -> Weights | None:
        return None
