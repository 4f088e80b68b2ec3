"""fedsim: personalized and asynchronous federated learning on Flower. The Python API (`run`, `sweep`, `resume`, `load`) and
what a plug-in needs are importable from here."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The packages strategies, clients, partitions and deploy are links here that point beside this folder. A Flower app bundle
# carries no links: there they are found where they lie.
if not (Path(__file__).parent / "strategies").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

if TYPE_CHECKING:
    from fedsim.aggregators import Aggregator
    from fedsim.algorithm import (
        Algorithm,
        ClassStatistics,
        ClientBehaviour,
        Fit,
        GlobalState,
        GlobalStrategy,
        ServerStrategy,
        Task,
    )
    from fedsim.api import EarlyStopping, Result, Step, load, resume, run, sweep
    from fedsim.attacks import Attack
    from fedsim.clients.local_sgd import LocalSGD
    from fedsim.clients.training import Batch, Trainer, one_step
    from fedsim.config import (
        FineTuning,
        Fraction,
        FractionBelowOne,
        NonNegativeFloat,
        NonNegativeInt,
        NoParams,
        PositiveFloat,
        PositiveFraction,
        PositiveInt,
        RunConfig,
    )
    from fedsim.errors import ConfigError, FedsimError
    from fedsim.filters import Filter
    from fedsim.layout import Layout, Part
    from fedsim.payload import Arrival, ClientState, Downlink, PersonalModel, Spec, Uplink
    from fedsim.server.fleet import Client, Fleet
    from fedsim.server_optimizers import ServerOptimizer
    from fedsim.trackers.base import TrackedRun, Tracker
    from fedsim.weights import Vec, Weights, weighted_mean, weighted_sum

# Loaded when asked for: a short command need not wait for Flower, nor a server for torch.
_HOMES = {
    "fedsim.aggregators": ("Aggregator",),
    "fedsim.algorithm": (
        "Algorithm",
        "ClassStatistics",
        "ClientBehaviour",
        "Fit",
        "GlobalState",
        "GlobalStrategy",
        "ServerStrategy",
        "Task",
    ),
    "fedsim.api": (
        "EarlyStopping",
        "Result",
        "Step",
        "load",
        "resume",
        "run",
        "sweep",
    ),
    "fedsim.attacks": ("Attack",),
    "fedsim.clients.local_sgd": ("LocalSGD",),
    "fedsim.clients.training": (
        "Batch",
        "Trainer",
        "one_step",
    ),
    "fedsim.config": (
        "FineTuning",
        "Fraction",
        "FractionBelowOne",
        "NoParams",
        "NonNegativeFloat",
        "NonNegativeInt",
        "PositiveFloat",
        "PositiveFraction",
        "PositiveInt",
        "RunConfig",
    ),
    "fedsim.errors": (
        "ConfigError",
        "FedsimError",
    ),
    "fedsim.filters": ("Filter",),
    "fedsim.layout": (
        "Layout",
        "Part",
    ),
    "fedsim.payload": (
        "Arrival",
        "ClientState",
        "Downlink",
        "PersonalModel",
        "Spec",
        "Uplink",
    ),
    "fedsim.server.fleet": (
        "Client",
        "Fleet",
    ),
    "fedsim.server_optimizers": ("ServerOptimizer",),
    "fedsim.trackers.base": ("TrackedRun", "Tracker"),
    "fedsim.weights": (
        "Vec",
        "Weights",
        "weighted_mean",
        "weighted_sum",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Aggregator",
    "Algorithm",
    "Arrival",
    "Attack",
    "Batch",
    "ClassStatistics",
    "Client",
    "ClientBehaviour",
    "ClientState",
    "ConfigError",
    "Downlink",
    "EarlyStopping",
    "FedsimError",
    "Filter",
    "FineTuning",
    "Fit",
    "Fleet",
    "Fraction",
    "FractionBelowOne",
    "GlobalState",
    "GlobalStrategy",
    "Layout",
    "LocalSGD",
    "NoParams",
    "NonNegativeFloat",
    "NonNegativeInt",
    "Part",
    "PersonalModel",
    "PositiveFloat",
    "PositiveFraction",
    "PositiveInt",
    "Result",
    "RunConfig",
    "ServerOptimizer",
    "ServerStrategy",
    "Spec",
    "Step",
    "Task",
    "TrackedRun",
    "Tracker",
    "Trainer",
    "Uplink",
    "Vec",
    "Weights",
    "load",
    "one_step",
    "resume",
    "run",
    "sweep",
    "weighted_mean",
    "weighted_sum",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedsim' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """For the TAB key: what can be imported from here, loaded or not."""
    return sorted({*globals(), *__all__})
