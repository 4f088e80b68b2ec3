"""Attacks on what a malicious client sends: its local training is honest, its uplink is not.

An update is a difference to a received model; an attack that is defined on models is applied to received + update.
Numbers of other roles (prototypes, control variates) are changed in the same way, whole numbers such as counts never.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedsim.attacks.base import Attack, Attackers, Roles
from fedsim.config import PositiveFloat
from fedsim.payload import Array, Downlink, Role, Uplink
from fedsim.weights import Vec, Weights

Change = Callable[[Array, Role, Vec | None], Array]  # of values, by their role and what was received in their place


def changed(uplink: Uplink, roles: Roles, down: Downlink, change: Change) -> Uplink:
    """An uplink whose parameters and arrays of real numbers are changed."""

    def received(values: Vec) -> Vec | None:
        same = (w.parameters for w in down.weights.values() if w.parameters.size == values.size)
        return next(same, None)

    weights = {
        name: Weights(change(w.parameters, roles[name], received(w.parameters)).astype(np.float32), w.buffers)
        for name, w in uplink.weights.items()
    }
    arrays = {
        name: change(array, roles[name], None).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in uplink.arrays.items()
    }
    return replace(uplink, weights=weights, arrays=arrays)


def stretched(factor: float) -> Change:
    """Moves on from what was received by `factor` times the honest change; arrays are multiplied."""

    def change(values: Array, role: Role, received: Vec | None) -> Array:
        if role == "model" and received is not None:
            return received + np.float32(factor) * (values - received)
        return np.float32(factor) * values

    return change


class UplinkAttack(Attack):
    """An attack that is one `Change`."""

    changes = frozenset(("update", "model", "statistic"))

    def on_client(self, uplink: Uplink, roles: Roles, down: Downlink, rng: np.random.Generator) -> Uplink:
        return changed(uplink, roles, down, self.change(rng))

    @abstractmethod
    def change(self, rng: np.random.Generator) -> Change: ...


@dataclass(frozen=True)
class ScaleParams(Attackers):
    factor: float = -0.1  # of the model or of the update
    of: Literal["model", "update"] = "model"  # what is scaled


class Scale(UplinkAttack):
    """the local model, or the update, times a factor (Sageflow's model poisoning)"""

    params = ScaleParams

    def change(self, rng: np.random.Generator) -> Change:
        factor = np.float32(self._params.factor)

        def of_model(values: Array, role: Role, received: Vec | None) -> Array:
            if role == "update" and received is not None:
                return factor * (received + values) - received
            return factor * values

        return of_model if self._params.of == "model" else stretched(float(factor))


@dataclass(frozen=True)
class SignFlipParams(Attackers):
    factor: PositiveFloat = 1.0  # of the reversed update


class SignFlip(UplinkAttack):
    """minus `factor` times the honest update"""

    params = SignFlipParams

    def change(self, rng: np.random.Generator) -> Change:
        return stretched(-self._params.factor)


@dataclass(frozen=True)
class NoiseParams(Attackers):
    deviation: PositiveFloat = 1.0  # standard deviation of what is added to every number


class Noise(UplinkAttack):
    """Gaussian noise is added to every number"""

    params = NoiseParams

    def change(self, rng: np.random.Generator) -> Change:
        def noisy(values: Array, role: Role, received: Vec | None) -> Array:
            added = rng.standard_normal(values.shape, np.float32)
            return np.asarray(values + np.float32(self._params.deviation) * added)

        return noisy


@dataclass(frozen=True)
class NanParams(Attackers):
    value: Literal["nan", "inf"] = "nan"  # what every number becomes


class NotANumber(UplinkAttack):
    """every number is NaN, or infinite; the server refuses such results and names the client"""

    params = NanParams

    def change(self, rng: np.random.Generator) -> Change:
        return lambda values, role, received: np.full_like(values, float(self._params.value))
