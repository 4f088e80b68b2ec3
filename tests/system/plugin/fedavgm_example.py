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
    beta: float = 0.5
    clip: float = 1.0  # c

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise fs.ConfigError(f"beta must be at least 0 and below 1, not {self.beta}")


@dataclass
class State:
    theta: fs.Vec
    velocity: fs.Vec


class FedAvgM(fs.ServerStrategy[Params, State]):
    def init(self, theta: fs.Vec, fleet: fs.Fleet) -> State:
        return State(theta.copy(), np.zeros_like(theta))

    def instruct(self, state: State, client: int) -> fs.Downlink:
        return fs.Downlink({"model": state.theta})

    def update(self, state: State, arrivals: Sequence[fs.Arrival]) -> State:
        deltas, sizes = [a.uplink.vectors["delta"] for a in arrivals], [a.uplink.examples for a in arrivals]
        state.velocity = np.float32(self.params.beta) * state.velocity + fs.weighted_mean(deltas, sizes)  # (1)
        state.theta += state.velocity
        return state

    def global_model(self, state: State) -> fs.Vec:
        return state.theta


class Clipped(fs.LocalSGD):
    def adjust(self, task: fs.Task, down: fs.Downlink, memory: fs.Memory) -> Callable[[Sequence[Any]], object]:
        return lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, self.params.clip)  # (2)


FEDAVGM_CLIPPED = fs.Algorithm(
    "fedavgm-clipped", "server momentum, clipped clients", Params, FedAvgM, "fedavgm_example:Clipped"
)
