"""Client half of FedAvg-FT: plain training; the client uses a fine-tuned copy of the global model."""

import numpy as np

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class FineTuned(LocalSGD):
    """Expects parameters with `epochs` (0: as long as local training)."""

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return task.fit(down.model, rng, epochs=self.params.epochs or None).weights
