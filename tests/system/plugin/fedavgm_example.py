"""FedAvgM (Hsu et al. 2019, arXiv 1909.06335) with clipped client gradients, as a plug-in.

Server (1):  v <- beta * v + sum_k (n_k / n) * delta_k,   w <- w + v
Client (2):  g <- g * min(1, c / ||g||) before every step of local SGD
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import fedsim as fs


@dataclass(frozen=True)
class Params:
    beta: fs.FractionBelowOne = 0.5
    clip: fs.PositiveFloat = 1.0  # c


@dataclass
class State:
    model: fs.Weights
    velocity: fs.Vec


class FedAvgM(fs.ServerStrategy[Params, State]):
    averages = True

    def init(self, model: fs.Weights, fleet: fs.Fleet) -> State:
        return State(model.copy(), np.zeros_like(model.parameters))

    def instruct(self, state: State, client: int, train: bool) -> fs.Downlink:
        return fs.Downlink({"model": state.model})

    def update(self, state: State, arrivals: Sequence[fs.Arrival]) -> State:
        deltas, sizes = [a.uplink.weights["delta"] for a in arrivals], [a.uplink.examples for a in arrivals]
        mean = self.aggregate([delta.parameters for delta in deltas], sizes)
        velocity = np.float32(self.params.beta) * state.velocity + mean  # (1)
        buffers = fs.weighted_mean([delta.buffers for delta in deltas], sizes)
        return State(fs.Weights(state.model.parameters + velocity, buffers), velocity)

    def global_model(self, state: State) -> fs.Weights:
        return state.model


class Clipped(fs.LocalSGD):
    def gradient_hook(
        self, task: fs.Task, down: fs.Downlink, state: fs.ClientState
    ) -> Callable[[Sequence[Any]], object]:
        return lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, self.params.clip)  # (2)


FEDAVGM_CLIPPED = fs.Algorithm(
    "fedavgm-clipped", "server momentum, clipped clients", Params, FedAvgM, "fedavgm_example:Clipped"
)
