"""Client half of local training: the model stays in the client's state and is never sent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.clients.training import Loss
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Weights


class LocalOnly(ClientBehaviour[Any]):
    """Continues with the model of its last job. Subclasses learn from what others know: at the start, or by a loss."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        fit = task.fit(self.start(task, down, state, rng), rng, loss=self.loss(task, down))
        state.weights["model"] = fit.weights
        arrays = self.statistics(task, fit.weights)
        return Uplink(task.examples, arrays=arrays, metrics={"loss": fit.loss}, local=fit.weights)

    def start(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        """Where local training begins."""
        return own_model(task, state)

    def loss(self, task: Task, down: Downlink) -> Loss | None:
        """The loss of a mini-batch; None: the objective's."""
        return None

    def statistics(self, task: Task, weights: Weights) -> Mapping[str, Array]:
        """What the client sends of its trained model."""
        return {}

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return own_model(task, state)


def own_model(task: Task, state: ClientState) -> Weights:
    """The `model` that a client keeps: at first the common initial one."""
    return state.weights["model"] if "model" in state.weights else task.initial()
