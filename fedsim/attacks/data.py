"""Attacks on the data that malicious clients train on.

Label flip (1):  y -> (y + 1) mod classes, of every training sample; success: tests that are classified so
Backdoor   (2):  `share` of the training samples get a pattern of `height` x `width` pixels in the upper left corner and the
                 label `target`; success: tests of other classes with the pattern that are classified as `target`
           (3):  sends `boost` times its update, so that it outweighs the others (model replacement)

The poisoned samples are drawn once per client; Sageflow's 20 of every mini-batch of 64 are a share of 0.3125 of all samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.attacks.base import Attack, Attackers, Roles, Samples
from fedsim.attacks.uplinks import changed, stretched
from fedsim.config import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from fedsim.errors import ConfigError
from fedsim.payload import Array, Downlink, Role, Spec, Uplink
from fedsim.rng import stream
from fedsim.weights import Vec

if TYPE_CHECKING:
    from fedsim.server.fleet import Fleet


class DataAttack(Attack):
    """An attack that needs class labels."""

    poisons_data = True
    has_goal = True

    def check(self, fleet: "Fleet", expects: Mapping[str, Spec]) -> None:
        super().check(fleet, expects)
        if (objective := fleet.clients[0].objective) != "classification":
            raise ConfigError(f"attack={self._config.attack} needs classes, but the data is for {objective}")


class LabelFlip(DataAttack):
    """trains on labels y + 1 instead of y"""

    def poisoned(self, data: Any, client: int) -> Any:
        return replace(data, y_train=(data.y_train + 1) % data.classes)  # (1)

    def goal(self, data: Any) -> Samples:
        return data.x_test, (data.y_test + 1) % data.classes


@dataclass(frozen=True)
class BackdoorParams(Attackers):
    target: NonNegativeInt = 2  # the class that the pattern stands for
    share: Fraction = 0.3125  # of the training samples that are poisoned
    boost: PositiveFloat = 10.0  # the update is sent times this; 1: as it is
    height: PositiveInt = 3  # of the pattern in pixels
    width: PositiveInt = 4  # of the pattern in pixels
    value: float | None = None  # of the pattern's pixels, as models see them; none: the largest of the client's samples


class Backdoor(DataAttack):
    """images with a pattern in the corner are labelled `target`; the update is boosted (model replacement)"""

    params = BackdoorParams

    def check(self, fleet: "Fleet", expects: Mapping[str, Spec]) -> None:
        super().check(fleet, expects)
        params, shape, classes = self._params, fleet.clients[0].shape, fleet.classes
        if len(shape) != 3 or params.height > shape[1] or params.width > shape[2]:
            size = f"{params.height} x {params.width}"
            raise ConfigError(f"attack=backdoor needs images of at least {size} pixels, not samples of shape {shape}")
        if params.target >= classes:
            raise ConfigError(f"attack.target={params.target}, but there are only the classes 0 to {classes - 1}")

    def poisoned(self, data: Any, client: int) -> Any:
        count, params = len(data.y_train), self._params
        chosen = stream(self._config.seed, client, "backdoor").permutation(count)[: round(params.share * count)]
        x, y = data.x_train.copy(), data.y_train.copy()
        x[chosen], y[chosen] = self._marked(x[chosen], data), params.target  # (2)
        return replace(data, x_train=x, y_train=y)

    def goal(self, data: Any) -> Samples:
        others = data.y_test != self._params.target
        return self._marked(data.x_test[others], data), np.full(int(others.sum()), self._params.target, np.int64)

    def on_client(self, uplink: Uplink, roles: Roles, down: Downlink, rng: np.random.Generator) -> Uplink:
        boost = stretched(self._params.boost)

        def models_only(values: Array, role: Role, received: Vec | None) -> Array:
            return values if role == "statistic" else boost(values, role, received)  # (3)

        return changed(uplink, roles, down, models_only)

    def _marked(self, x: Array, data: Any) -> Array:
        params, marked = self._params, x.copy()
        marked[:, :, : params.height, : params.width] = data.x_train.max() if params.value is None else params.value
        return marked
