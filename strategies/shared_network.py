"""FedAvg of a network that all clients have in common, beside a model of each client that never leaves it."""

from fedsim import registry
from fedsim.algorithm import GlobalState
from fedsim.errors import ConfigError
from fedsim.server.fleet import Fleet
from fedsim.strategies.fedavg import FedAvg
from fedsim.weights import Weights


class SharedNetwork(FedAvg):
    """Expects parameters with `shared`, the name of the network's model; empty: the run's."""

    def init(self, model: Weights, fleet: Fleet) -> GlobalState:
        if not self.params.shared and len(fleet.layouts) > 1:
            raise ConfigError(
                f"the clients have the models {', '.join(sorted(fleet.layouts))}: name the one that all of them share, "
                f"{self.config.algorithm}.shared=NAME. Choices: {', '.join(registry.names('model'))}"
            )
        return super().init(model, fleet)
