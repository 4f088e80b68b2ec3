"""fedsim: personalized and asynchronous federated learning on Flower. What a plug-in needs is importable from here."""

from typing import Any

from fedsim import registry
from fedsim.algorithm import Algorithm, ClientBehaviour, Fit, GlobalState, GlobalStrategy, ServerStrategy, Task
from fedsim.config import NoParams, RunConfig
from fedsim.errors import ConfigError, FedsimError
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Downlink, Memory, Model, Uplink
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
    "LocalSGD",
    "Memory",
    "Model",
    "NoParams",
    "RunConfig",
    "ServerStrategy",
    "Task",
    "Uplink",
    "Vec",
    "weighted_mean",
    "weighted_sum",
]


def __getattr__(name: str) -> Any:
    """`LocalSGD`, the base of client halves, brings torch; it is loaded by those who ask for it."""
    if name == "LocalSGD":
        return registry.load("clients.local_sgd:LocalSGD")
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}")
