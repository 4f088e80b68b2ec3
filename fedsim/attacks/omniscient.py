"""Attacks that know the updates of the honest clients: ALIE (Baruch et al. 2019, arXiv 1902.06156) and inner product
manipulation (Xie et al. 2019, arXiv 1903.03936).

(1)  ALIE:  mean - z * deviation, in every coordinate over the honest updates of the step
(2)         z = the normal quantile of (n - m - s) / (n - m),   s = floor(n/2 + 1) - m,   with z=none
(3)  IPM:   -eps * mean

n clients arrive in the step, m of them malicious. No client can see what the others send, so the server plays the
attacker: it replaces the results of malicious clients just before the update of its state. The result is the same on
every engine and in a real federation, where malicious clients train and send as honest ones do. In a step without
honest arrivals nothing is replaced.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.attacks.base import Attack, Attackers, Roles
from fedsim.config import NonNegativeFloat
from fedsim.payload import Array, Arrival, Uplink
from fedsim.weights import Weights, blocks

Values = NDArray[np.float64]


class OmniscientAttack(Attack):
    """Replaces the results of malicious clients by one that is made from those of the honest ones."""

    def on_server(self, arrivals: Sequence[Arrival], roles: Roles) -> Sequence[Arrival]:
        bad = [a.client in self.malicious(a.step) for a in arrivals]
        honest = [a.uplink for a, is_bad in zip(arrivals, bad, strict=True) if not is_bad]
        if not any(bad) or not honest:
            return arrivals
        made = self._made(honest, roles, sum(bad))
        return [
            replace(a, uplink=_with(a.uplink, made)) if is_bad else a for a, is_bad in zip(arrivals, bad, strict=True)
        ]

    def _made(self, honest: Sequence[Uplink], roles: Roles, malicious: int) -> dict[str, Array]:
        """What the attacker sends, by name, instead of everything it changes and every honest client sent."""
        made: dict[str, Array] = {}
        for name, role in roles.items():
            found = [_values(uplink, name) for uplink in honest]
            rows = [v for v in found if v is not None and v.dtype.kind == "f"]
            if role in self.changes and len(rows) == len(honest) and len({v.shape for v in rows}) == 1:
                made[name] = self._combined(rows, malicious)
        return made

    def _combined(self, rows: Sequence[Array], malicious: int) -> Array:
        flat, out = [row.reshape(-1) for row in rows], np.empty(rows[0].size, rows[0].dtype)
        for block in blocks(out.size):
            values = np.stack([row[block] for row in flat]).astype(np.float64)
            out[block] = self.combine(values, malicious)
        return out.reshape(rows[0].shape)

    @abstractmethod
    def combine(self, honest: Values, malicious: int) -> Values:
        """One value per column of honest clients x coordinates, for so many malicious clients."""


@dataclass(frozen=True)
class AlieParams(Attackers):
    z: NonNegativeFloat | None = 1.5  # deviations from the mean; none: (2), which is 0 for few malicious clients


class Alie(OmniscientAttack):
    """the honest mean minus z standard deviations: a little is enough"""

    params = AlieParams
    changes = frozenset(("update", "model", "statistic"))

    def combine(self, honest: Values, malicious: int) -> Values:
        z = supporters_quantile(len(honest) + malicious, malicious) if self._params.z is None else self._params.z
        return np.asarray(honest.mean(axis=0) - z * honest.std(axis=0))  # (1)


def supporters_quantile(count: int, malicious: int) -> float:
    """(2), between 0 and 3: with a majority of malicious clients it would not be defined."""
    needed = floor(count / 2 + 1) - malicious
    share = (count - malicious - needed) / (count - malicious)
    return NormalDist().inv_cdf(min(max(share, 0.5), 0.99865))


@dataclass(frozen=True)
class InnerProductParams(Attackers):
    eps: NonNegativeFloat = 0.5  # factor of the honest mean, which is subtracted


class InnerProduct(OmniscientAttack):
    """minus eps times the honest mean: the aggregate points away from the descent direction"""

    params = InnerProductParams
    changes = frozenset(("update",))

    def combine(self, honest: Values, malicious: int) -> Values:
        return np.asarray(-self._params.eps * honest.mean(axis=0))  # (3)


def _values(uplink: Uplink, name: str) -> Array | None:
    return uplink.weights[name].parameters if name in uplink.weights else uplink.arrays.get(name)


def _with(uplink: Uplink, made: dict[str, Array]) -> Uplink:
    def other(names: Iterable[str]) -> list[str]:
        return [name for name in names if name in made]

    weights: dict[str, Any] = {n: Weights(made[n], uplink.weights[n].buffers) for n in other(uplink.weights)}
    arrays = {n: made[n] for n in other(uplink.arrays)}
    return replace(uplink, weights={**uplink.weights, **weights}, arrays={**uplink.arrays, **arrays})
