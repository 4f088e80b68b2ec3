"""The loss of mixtures of two clients' models (McMahan et al. 2017, Figure 1): why FedAvg starts all clients alike.

Two clients train w and w' by themselves, from the same or from different initial models. The loss of
theta * w + (1 - theta) * w' is measured on the training data of all clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.client.jobs import data_of, task_of
from fedsim.clients.fedma import own_initial
from fedsim.config import RunConfig
from fedsim.errors import ConfigError
from fedsim.rng import stream
from fedsim.weights import Weights, weighted_sum

STARTS = ("common", "different")


@dataclass(frozen=True)
class MixedLosses:
    """`losses[start]` has a loss for every theta; theta 0 and 1 are the two parents."""

    metric: str
    clients: tuple[int, int]
    thetas: Sequence[float]
    losses: dict[str, list[float]]


def mixed_losses(config: RunConfig, clients: tuple[int, int], thetas: Sequence[float]) -> MixedLosses:
    """Trains both clients for `local-epochs` (or `local-steps`) from either start. Raises ConfigError unless they are two
    different clients of the run."""
    if strange := [client for client in clients if not 0 <= client < config.clients]:
        raise ConfigError(f"client {strange[0]} is none of the run's: it has clients 0 to {config.clients - 1}")
    if clients[0] == clients[1]:
        raise ConfigError(f"client {clients[0]} cannot be mixed with itself: choose two clients")
    classes = data_of(config, 0).classes
    tasks = [task_of(config, client, classes)[0] for client in range(config.clients)]
    metrics = list(tasks[0].objective.metrics)
    metric = "loss" if "loss" in metrics else metrics[0]

    def trained(client: int, start: str) -> Weights:
        task, rng = tasks[client], stream(config.seed, client, "mixing")
        initial = task.initial() if start == "common" else own_initial(task, rng)
        found: Weights = task.fit(initial, rng).weights
        return found

    def loss(weights: Weights) -> float:
        total = sum(task.evaluate(weights, "train")[metric] * task.examples for task in tasks)
        return float(total / sum(task.examples for task in tasks))

    losses: dict[str, list[float]] = {}
    for start in STARTS:
        w, other = (trained(client, start) for client in clients)
        losses[start] = [loss(mixed(w, other, theta)) for theta in thetas]
    return MixedLosses(metric, clients, np.asarray(thetas).tolist(), losses)


def mixed(w: Weights, other: Weights, theta: float) -> Weights:
    """theta * w + (1 - theta) * other."""
    shares = (theta, 1 - theta)
    parts = ((w.parameters, other.parameters), (w.buffers, other.buffers))
    return Weights(*(weighted_sum(pair, shares) for pair in parts))
