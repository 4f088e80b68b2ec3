"""Client half of FedMA: local SGD, at first perhaps from an own initial model, later perhaps with frozen layers."""

import numpy as np

from fedsim.algorithm import Fit, Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedMAClient(LocalSGD):
    """The server says with `own-start` whether training starts from an own initial model, and with `frozen` how many
    parameters, the first ones of the model, stay as they are."""

    def fit(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Fit:
        start = own_initial(task, rng) if down.numbers["own-start"] else down.model
        frozen, size = int(down.numbers.get("frozen", 0)), start.parameters.size
        later = Part(np.arange(size) >= frozen, np.ones(start.buffers.size, bool))
        return task.fit(start, rng, train=later if frozen else None)


class WholeModel(FedMAClient):
    """Sends its model instead of its update: the server keeps no copy of what each client started from."""

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        return Uplink(task.examples, {"model": fit.weights}, metrics={"loss": fit.loss}, local=fit.weights)


def own_initial(task: Task, rng: np.random.Generator) -> Weights:
    """The common initial model with the values of every tensor shuffled: another draw from the same distribution."""
    initial = task.initial()
    parts = [rng.permutation(values.reshape(-1)) for _, values in task.layout.split(initial.parameters)]
    return Weights(np.concatenate(parts), initial.buffers)
