"""Client half of local training: the model stays in the client's state and is never sent."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.config import NoParams
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class LocalOnly(ClientBehaviour[NoParams]):
    """Continues with the model of its last job."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        fit = task.fit(own_model(task, state), rng)
        state.weights["model"] = fit.weights
        return Uplink(task.examples, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return own_model(task, state)


def own_model(task: Task, state: ClientState) -> Weights:
    """The `model` that a client keeps: at first the common initial one."""
    return state.weights["model"] if "model" in state.weights else task.initial()
