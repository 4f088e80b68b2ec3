"""fedsim: personalized and asynchronous federated learning on Flower. What a plug-in needs is importable from here."""

from fedsim.algorithm import Algorithm, ClientBehaviour, Fit, GlobalState, GlobalStrategy, ServerStrategy, Task
from fedsim.config import NoParams, RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Downlink, Memory, Uplink
from fedsim.vector import Layout, Vec, weighted_mean, weighted_sum

__all__ = [
    "Algorithm",
    "Arrival",
    "Client",
    "ClientBehaviour",
    "ConfigError",
    "Downlink",
    "FedsimError",
    "Fit",
    "Fleet",
    "GlobalState",
    "GlobalStrategy",
    "Layout",
    "Memory",
    "NoParams",
    "RunConfig",
    "ServerStrategy",
    "Task",
    "Uplink",
    "Vec",
    "weighted_mean",
    "weighted_sum",
]
