"""Client half of FedRep: the head is trained first, then the base below it."""

import numpy as np

from fedsim.algorithm import Fit, Task
from fedsim.clients.fedper import PartlyPrivate
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink
from fedsim.weights import Weights


class FedRepClient(PartlyPrivate):
    """Expects parameters with `head_epochs`, `base_epochs` and `final_epochs`. Equation numbers are those of
    `fedsim.strategies.fedrep`."""

    def fit(self, task: Task, start: Weights, private: Part, rng: np.random.Generator) -> Fit:
        fit = Fit(start, 0.0, 0)
        for part, epochs in ((private, self.params.head_epochs), (~private, self.params.base_epochs)):  # (2), (3)
            if part.size and epochs:
                fit = task.fit(fit.weights, rng, train=part, epochs=epochs)
        return fit

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        model, private = self.assembled(task, down, state), self.private(task, down)
        if not (down.numbers["final"] and self.params.final_epochs and private.size):
            return model
        return task.fit(model, rng, train=private, epochs=self.params.final_epochs).weights  # (4)
