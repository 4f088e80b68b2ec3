"""The contract of an attack: who attacks, and the three places where an attack can act."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedsim.config import Fraction, NoParams, PositiveInt, RunConfig
from fedsim.errors import ConfigError
from fedsim.payload import Arrival, Downlink, Role, Spec, Uplink
from fedsim.rng import stream

if TYPE_CHECKING:
    from fedsim.server.fleet import Fleet

SUCCESS = (
    "attack-success"  # the metric: share of the samples of `Attack.goal` that are classified as the attacker wants
)
Roles = Mapping[str, Role]  # by the name of what an uplink holds
Samples = Any  # inputs and labels: a pair of arrays


@dataclass(frozen=True)
class Attackers:
    """Parameters of every attack: who attacks, and when."""

    clients: tuple[int, ...] = ()  # ids of the malicious clients; none: `ratio` of all clients, drawn
    ratio: Fraction = 0.2  # share of all clients that is malicious, if `clients` names none
    from_round: PositiveInt = 1  # the first round in which they attack; before it they are honest
    redraw: bool = False  # drawn anew for every round instead of once


class Attack:
    """Made from its parameters and the run's configuration. An attack acts in one or more of three places: on the training
    data of a malicious client, on what it sends, or on the server, among the arrivals of a step."""

    params: ClassVar[type[Any]] = Attackers
    poisons_data: ClassVar[bool] = False  # malicious clients train on `poisoned` data
    has_goal: ClassVar[bool] = False  # its success is measured on `goal`
    changes: ClassVar[frozenset[Role]] = frozenset()  # roles of what it changes in uplinks

    def __init__(self, params: Any, config: RunConfig) -> None:
        self._params, self._config = params, config
        if beyond := [c for c in params.clients if not 0 <= c < config.clients]:
            told = f"clients={config.clients} allows 0 to {config.clients - 1}"
            raise ConfigError(f"attack.clients names client {beyond[0]}, but {told}")
        if unseen := [c for c in params.clients if c in config.unseen]:
            raise ConfigError(f"attack.clients names client {unseen[0]}, which partition.unseen keeps out of training")
        if params.clients and params.redraw:
            raise ConfigError("attack.redraw=true draws the malicious clients: leave attack.clients empty")
        self._by_step: dict[int, frozenset[int]] = {}

    def malicious(self, step: int) -> frozenset[int]:
        """The clients whose jobs of this server step (0 is the first round) are attacks."""
        params: Attackers = self._params
        if step + 1 < params.from_round:
            return frozenset()
        if not params.redraw:
            return self._fixed
        if step not in self._by_step:
            self._by_step[step] = self._drawn("attack", step)
        return self._by_step[step]

    @cached_property
    def _fixed(self) -> frozenset[int]:
        return frozenset(self._params.clients) or self._drawn("attack")

    def _drawn(self, *key: int | str) -> frozenset[int]:
        config = self._config
        count = round(self._params.ratio * (config.clients - len(config.unseen)))
        order = stream(config.seed, *key).permutation(config.clients).tolist()
        return frozenset([client for client in order if client not in config.unseen][:count])

    def check(self, fleet: "Fleet", expects: Mapping[str, Spec]) -> None:
        """Raises ConfigError if the run's data or what its clients send leaves nothing to attack."""
        floats = {name: spec.role for name, spec in expects.items() if np.dtype(spec.dtype).kind == "f"}
        if self.changes and not self.changes & set(floats.values()):
            sent = ", ".join(f"{name!r} (a {role})" for name, role in floats.items()) or "nothing"
            what, config = ", ".join(sorted(self.changes)), self._config
            raise ConfigError(
                f"attack={config.attack} changes values of the kind {what}, but clients of {config.algorithm} send {sent}"
            )

    def poisoned(self, data: Any, client: int) -> Any:
        """The `ClientData` that a malicious client trains on, with `poisons_data`."""
        return data

    def goal(self, data: Any) -> Samples:
        """Inputs, and the labels that the attacker wants for them, from a client's test data, with `has_goal`."""
        return data.x_test, data.y_test

    def on_client(self, uplink: Uplink, roles: Roles, down: Downlink, rng: np.random.Generator) -> Uplink:
        """What a malicious client sends instead of `uplink`, before the run's filters."""
        return uplink

    def on_server(self, arrivals: Sequence[Arrival], roles: Roles) -> Sequence[Arrival]:
        """The arrivals of a step, with those of malicious clients replaced by an attacker who knows all others."""
        return arrivals

    @property
    def metrics(self) -> dict[str, Literal["max", "min"]]:
        """Metrics besides the objective's."""
        return {SUCCESS: "min"} if self.has_goal else {}


class NoAttack(Attack):
    """all clients are honest"""

    params = NoParams

    def __init__(self, params: Any, config: RunConfig) -> None:
        """There is nothing to set."""

    def malicious(self, step: int) -> frozenset[int]:
        return frozenset()

    def check(self, fleet: "Fleet", expects: Mapping[str, Spec]) -> None:
        """Nothing is attacked."""


@lru_cache(maxsize=8)
def attack_of(config: RunConfig) -> Attack:
    """The run's attack."""
    made: Attack = config.part("attack")(config.params("attack"), config)
    return made


def malicious_clients(config: RunConfig) -> list[int]:
    """The clients that attack in at least one round of the run."""
    attack = attack_of(config)
    return sorted(frozenset().union(*(attack.malicious(step) for step in range(config.rounds))))
