"""fedsim: personalized and asynchronous federated learning on Flower. What a plug-in needs is importable from here."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.algorithm import Algorithm, ClientBehaviour, Fit, GlobalState, GlobalStrategy, ServerStrategy, Task
    from fedsim.config import NoParams, RunConfig
    from fedsim.errors import ConfigError, FedsimError
    from fedsim.fleet import Client, Fleet
    from fedsim.payload import Arrival, Downlink, Memory, Model, Uplink
    from fedsim.vector import Layout, Vec, weighted_mean, weighted_sum

# Loaded when asked for: a short command need not wait for Flower, nor a server for torch.
_HOMES = {
    "clients.local_sgd": ("LocalSGD",),
    "fedsim.algorithm": (
        "Algorithm",
        "ClientBehaviour",
        "Fit",
        "GlobalState",
        "GlobalStrategy",
        "ServerStrategy",
        "Task",
    ),
    "fedsim.config": ("NoParams", "RunConfig"),
    "fedsim.errors": ("ConfigError", "FedsimError"),
    "fedsim.fleet": ("Client", "Fleet"),
    "fedsim.payload": ("Arrival", "Downlink", "Memory", "Model", "Uplink"),
    "fedsim.vector": ("Layout", "Vec", "weighted_mean", "weighted_sum"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

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
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedsim' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
