"""Client half of FedBABU: the base is trained below a head that never changes."""

import numpy as np

from fedsim.algorithm import Fit, Task
from fedsim.clients.fedper import PartlyPrivate
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class FixedHead(PartlyPrivate):
    """Keeps nothing: the head is the initial one. Equation numbers are those of `fedsim.strategies.fedbabu`."""

    def fit(self, task: Task, start: Weights, private: Part, rng: np.random.Generator) -> Fit:
        return task.fit(start, rng, train=~private)  # (2)

    def keep(self, state: ClientState, private: Weights) -> None:
        pass

    def global_model(self, task: Task, down: Downlink) -> Weights:
        return self.assembled(task, down, ClientState())
