"""FedAvg of a network that all clients have in common, beside a model of each client that never leaves it: what FML and
FedKD have in common."""

from dataclasses import dataclass

from fedsim import registry
from fedsim.algorithm import GlobalState
from fedsim.errors import ConfigError
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


@dataclass(frozen=True)
class SharedParams:
    shared: str = ""  # the model of the network (see `fedsim list models`); empty: the run's

    def __post_init__(self) -> None:
        if self.shared:
            registry.check("model", self.shared)


class SharedNetwork(FedAvg):
    """Expects `SharedParams`."""

    averages_model = False  # the network need not be the run's model

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        shared, others = self.params.shared, sorted(fleet.layouts.keys() - {self.params.shared})
        key = f"{self.config.algorithm}.shared"
        if not shared and len(others) > 1:
            raise ConfigError(
                f"the clients have the models {', '.join(others)}: name the one that all of them share, {key}=NAME. "
                f"Choices: {', '.join(registry.names('model'))}"
            )
        if shared and others and self.config.params("finetune").length != 0:
            raise ConfigError(
                f"finetune={self.config.finetune}: clients with the model {', '.join(others)} cannot tune the shared model "
                f"{shared}. Set model={shared} or finetune=0"
            )
        return super().init(model, fleet)
