"""Client half of FedAMP and HeurFedAMP: proximal training towards the cloud model; the client uses its own model."""

import numpy as np

from fedsim.algorithm import Task
from fedsim.clients.fedprox import Proximal
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedAMPClient(Proximal):
    """Expects parameters with `start`: cloud (the received model) or own. Buffers stay in the client's state."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        own = self.personalize(task, down, state, rng)
        start = own.parameters if self.params.start == "own" else down.model.parameters
        fit = task.fit(Weights(start, own.buffers), rng, gradient=self.gradient_hook(task, down, state))
        state.weights["model"] = fit.weights
        sent = Weights(fit.weights.parameters)
        return Uplink(task.examples, {"model": sent}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        if "model" in state.weights:
            return state.weights["model"]
        return Weights(down.model.parameters, task.initial().buffers)
