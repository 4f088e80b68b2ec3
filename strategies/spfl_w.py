"""SPFL-w: SPFL's baseline that mixes models instead of updates (same paper, section 4.1).

Aggregation (1):  w_{s,i} <- sum_j omega_s(i,j) * (w_{s,j} - g_{s,j}), the models after local training

Reset, probe, similarity (3), SNGS (5)(6), omega and client are those of `fedsim.strategies.spfl`. The printed factor
1/M would shrink the models in every round; omega is normalized, and there is no server step. Mixing models removes
most of their differences in every round, so SPFL-w behaves like FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithm import Algorithm
from fedsim.errors import ConfigError
from fedsim.payload import Arrival
from fedsim.strategies.spfl import Matrix, Params, Spfl, State
from fedsim.weights import mix


@dataclass(frozen=True)
class MixingParams(Params):
    def __post_init__(self) -> None:
        if self.weighting != "normalized" or self.server_lr != 1:
            raise ConfigError("spfl-w mixes whole models: it needs spfl-w.weighting=normalized and spfl-w.server-lr=1")


class SpflW(Spfl):
    """Each client's model becomes a mixture of all trained models."""

    def _aggregate(
        self, state: State, targets: list[int], weights: Matrix, arrivals: Sequence[Arrival], parts: Sequence[slice]
    ) -> None:
        models = [state.models[self.fleet.row(a.client)] for a in arrivals]
        deltas = [a.uplink.weights["delta"].parameters for a in arrivals]
        for block, mixed in mix(np.hstack([weights, weights]), [*models, *deltas], parts):  # (1)
            state.models[targets, block] = mixed


SPFL_W = Algorithm(
    name="spfl-w",
    about="SPFL's baseline: models instead of updates are mixed by similarity",
    params=MixingParams,
    server=SpflW,
    client="fedsim.clients.spfl:SpflClient",
)
