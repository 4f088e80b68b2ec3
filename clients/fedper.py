"""Client half of FedPer and FedBN: trains the whole model, exchanges a part of it, keeps the rest."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class PartlyPrivate(ClientBehaviour[object]):
    """Receives `shared` weights and the names of the parts that stay private."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        private = self._private(task, down)
        fit = task.fit(self.personalize(task, down, state, rng), rng)
        state.weights["private"] = fit.weights.only(private)
        delta = fit.weights.only(~private).delta(down.weights["shared"])
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        """The received part with the client's own private part, which is the initial one before its first job."""
        private = self._private(task, down)
        model = task.initial().with_part(~private, down.weights["shared"])
        return model.with_part(private, state.weights["private"]) if "private" in state.weights else model

    def _private(self, task: Task, down: Downlink) -> Part:
        names = str(down.numbers["private"])
        return task.layout.part(*names.split(",")) if names else task.layout.part()
