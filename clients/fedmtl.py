"""Client half of FedMTL: continues with its own model, pulled towards the mean of the others."""

import numpy as np

from fedsim.algorithm import Task
from fedsim.clients.fedprox import proximal
from fedsim.clients.local import LocalOnly
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedMTLClient(LocalOnly):
    """Receives the mean of the `others` and sends its whole model. Equation numbers: `fedsim.strategies.fedmtl`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        pull = None
        if "others" in down.weights:  # a client that is alone has none
            pull = proximal(task.layout, down.weights["others"], float(down.numbers["proximal"]))
        fit = task.fit(self.personalize(task, down, state, rng), rng, gradient=pull)  # (3)
        state.weights["model"] = fit.weights
        sent = Weights(fit.weights.parameters)
        return Uplink(task.examples, {"model": sent}, metrics={"loss": fit.loss}, local=fit.weights)
