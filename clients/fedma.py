"""Client half of FedMA: local SGD, the first time perhaps from an initial model of its own."""

import numpy as np

from fedsim.algorithm import Fit, Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class FedMAClient(LocalSGD):
    """The server says with `own-start` whether training starts from an own initial model."""

    def fit(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Fit:
        return task.fit(own_initial(task, rng) if down.numbers["own-start"] else down.model, rng)


def own_initial(task: Task, rng: np.random.Generator) -> Weights:
    """The common initial model with the values of every tensor shuffled: another draw from the same distribution."""
    initial = task.initial()
    parts = [rng.permutation(values.reshape(-1)) for _, values in task.layout.split(initial.parameters)]
    return Weights(np.concatenate(parts), initial.buffers)
