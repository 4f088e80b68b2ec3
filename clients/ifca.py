"""Client half of IFCA: chooses the model with the lowest training loss, and trains it."""

from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class IfcaClient(ClientBehaviour[Any]):
    """Receives models as `cluster-J`. Equation numbers are those of `fedsim.strategies.ifca`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        number, start = choice(task, down)
        fit = task.fit(start, rng)  # (2)
        delta, metrics = fit.weights.delta(start), {"loss": fit.loss}
        return Uplink(
            task.examples, {"delta": delta}, {"cluster": np.array([number])}, metrics=metrics, local=fit.weights
        )

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return choice(task, down)[1]


def choice(task: Task, down: Downlink) -> tuple[int, Weights]:
    """(1): the number of the model with the lowest loss, the first of equal ones, and the model."""
    models = [down.weights[f"cluster-{number}"] for number in range(len(down.weights))]
    losses = np.nan_to_num(task.losses(models), nan=np.inf) if len(models) > 1 else np.zeros(1)
    number = int(np.argmin(losses))
    return number, models[number]
