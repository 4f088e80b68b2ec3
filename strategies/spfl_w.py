"""SPFL-w: SPFL's baseline that mixes models instead of updates (same paper, section 4.1).

Aggregation (1):  w_{s,i} <- sum_j omega_s(i,j) * (w_{s,j} - g_{s,j}), the models after local training

Everything else - reset, probe, similarity, omega, client - is that of `strategies.spfl`, equations (2) to (6). The printed
factor 1/M would shrink the models in every round; omega is normalized, and there is no server step. Mixing models takes
most of their differences away each time, so it behaves like FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedsim.algorithm import Algorithm
from fedsim.errors import ConfigError
from fedsim.payload import Arrival
from fedsim.vector import mix
from strategies.spfl import Matrix, Params, Spfl, State


@dataclass(frozen=True)
class MixingParams(Params):
    section: ClassVar[str] = "spfl-w"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting != "normalized" or self.server_lr != 1:
            raise ConfigError("spfl-w mixes whole models: weighting=normalized and server-lr=1 are all it can do")


class SpflW(Spfl):
    """Everyone's own model becomes a mixture of everyone's trained models."""

    def _aggregate(
        self, state: State, targets: list[int], weights: Matrix, arrivals: Sequence[Arrival], parts: Sequence[slice]
    ) -> None:
        models = [state.models[self._rows[a.client]] for a in arrivals]
        deltas = [a.uplink.vectors["delta"] for a in arrivals]
        for block, mixed in mix(np.hstack([weights, weights]), [*models, *deltas], parts):  # (1)
            state.models[targets, block] = mixed


SPFL_W = Algorithm(
    name="spfl-w",
    about="SPFL's baseline: models instead of updates are mixed by similarity",
    params=MixingParams,
    server=SpflW,
    client="clients.probing:Probing",
)
