"""Filters treat what clients send, on the client before it is sent and on the server when it arrives.

`filters=clip` chooses them, several separated by commas; `clip.norm=1` sets their parameters. Clients apply them in that
order, the server in the opposite one. A filter names the roles (see `payload.Spec`) it can treat; a run whose algorithm
sends anything else is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedsim import registry
from fedsim.config import NoParams, PositiveFloat, RunConfig
from fedsim.errors import ConfigError, WireError
from fedsim.payload import Answer, Failure, Role, Spec, Uplink
from fedsim.weights import Weights

FILTERS = {"clip": "fedsim.filters:Clip"}
Roles = Mapping[str, Role]  # by the name of what an uplink holds


class Filter:
    """Made from its parameters. Either half may stay as it is: it then passes everything on."""

    params: ClassVar[type[Any]] = NoParams
    roles: ClassVar[frozenset[Role]] = frozenset(("update", "model", "statistic"))

    def __init__(self, params: Any) -> None:
        self._params = params

    def on_client(self, uplink: Uplink, roles: Roles, rng: np.random.Generator) -> Uplink:
        """What leaves the client; `rng` belongs to this job and filter."""
        return uplink

    def on_server(self, uplink: Uplink, roles: Roles) -> Uplink:
        """What the strategy receives; raises WireError to refuse the client's result."""
        return uplink


@dataclass(frozen=True)
class ClipParams:
    norm: PositiveFloat = 1.0  # largest Euclidean length of an update


class Clip(Filter):
    """updates longer than clip.norm are scaled to that length, by the client and again by the server"""

    params = ClipParams
    roles = frozenset(("update",))

    def on_client(self, uplink: Uplink, roles: Roles, rng: np.random.Generator) -> Uplink:
        return replace(uplink, weights={name: self._clipped(value) for name, value in uplink.weights.items()})

    def on_server(self, uplink: Uplink, roles: Roles) -> Uplink:
        return replace(uplink, weights={name: self._clipped(value) for name, value in uplink.weights.items()})

    def _clipped(self, update: Weights) -> Weights:
        length = float(np.linalg.norm(update.parameters.astype(np.float64)))
        if length <= self._params.norm:
            return update
        return Weights(update.parameters * np.float32(self._params.norm / length), update.buffers)


def filters_of(config: RunConfig) -> list[Filter]:
    """The run's filters, in the order in which clients apply them."""
    return [registry.find("filter", name)(config.params(name)) for name in config.filter_names]


def check_filters(config: RunConfig, expects: Mapping[str, Spec]) -> None:
    """Raises ConfigError if a filter cannot treat something that the algorithm's uplinks hold."""
    for name in config.filter_names:
        treats = registry.find("filter", name).roles
        for entry, spec in expects.items():
            if spec.role not in treats:
                raise ConfigError(
                    f"filter {name!r} treats {', '.join(sorted(treats))}, but {config.algorithm} sends {entry!r}, "
                    f"a {spec.role}: run it without this filter"
                )


def sent_roles(config: RunConfig, expects: Mapping[str, Spec]) -> dict[str, Role]:
    """The roles that clients must know of what they send: those for filters and attacks, else none."""
    return roles_of(expects) if config.filter_names or config.attack != "none" else {}


def roles_of(expects: Mapping[str, Spec]) -> dict[str, Role]:
    return {name: spec.role for name, spec in expects.items()}


def filtered_on_server(
    filters: Sequence[Filter], result: Answer | Failure, expects: Mapping[str, Spec]
) -> Answer | Failure:
    """A client's result after the server halves of the filters; one that a filter refuses becomes a failure."""
    if isinstance(result, Failure) or result.uplink is None or not filters:
        return result
    uplink = result.uplink
    try:
        for each in reversed(filters):
            uplink = each.on_server(uplink, roles_of(expects))
    except WireError as refusal:
        return Failure(result.job, f"its reply was refused: {refusal}", refused=True)
    return replace(result, uplink=uplink)
