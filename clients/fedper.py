"""Client half of FedPer, FedBN, LG-FedAvg and pFedHN: trains the whole model, exchanges a part of it, keeps the rest."""

from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Fit, Task
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class PartlyPrivate(ClientBehaviour[Any]):
    """Receives `shared` weights and the names of the parts that stay `private`; sends the update of `shared`. Subclasses
    change the training."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        private = self.private(task, down)
        fit = self.fit(task, self.assembled(task, down, state), private, rng)
        self.keep(state, fit.weights.only(private))
        delta = fit.weights.only(~private).delta(down.weights["shared"])
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return self.assembled(task, down, state)

    def fit(self, task: Task, start: Weights, private: Part, rng: np.random.Generator) -> Fit:
        """Local training of the assembled model."""
        return task.fit(start, rng)

    def keep(self, state: ClientState, private: Weights) -> None:
        """What stays with the client after a job."""
        state.weights["private"] = private

    def assembled(self, task: Task, down: Downlink, state: ClientState) -> Weights:
        """The received part with the client's own private part, which is the initial one before its first job."""
        private = self.private(task, down)
        model = task.initial().with_part(~private, down.weights["shared"])
        return model.with_part(private, state.weights["private"]) if "private" in state.weights else model

    def private(self, task: Task, down: Downlink) -> Part:
        names = str(down.numbers["private"])
        return task.layout.part(*names.split(",")) if names else task.layout.part()
