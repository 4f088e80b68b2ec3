"""Client half of FedUpdate: plain training; the client uses the global model after a few more steps."""

import numpy as np

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class Updated(LocalSGD):
    """Expects parameters with `steps`: the number of mini-batches."""

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return task.fit(down.model, rng, steps=self.params.steps).weights
