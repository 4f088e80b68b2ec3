"""Client half of TWAFL: the deep part stays with the client between the rounds in which it is exchanged."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.layout import Part
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class LayerWise(ClientBehaviour[object]):
    """Trains the whole model; returns its shallow part, and the deep part when the server asks for it."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        fit = task.fit(self.personalize(task, down, state, rng), rng)
        deep, after = self._deep(task, down).parameters, fit.weights
        state.weights["deep"] = Weights(after.parameters[deep], after.buffers)
        sent = {"shallow": Weights(after.parameters[~deep])}
        if down.numbers["deep"]:
            sent["deep"] = Weights(after.parameters[deep])
        return Uplink(task.examples, sent, metrics={"loss": fit.loss}, local=after)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        """The received model if the deep part is exchanged, else the received shallow part with the client's deep part.

        The buffers are the client's own.
        """
        own, initial = state.weights.get("deep"), task.initial()
        buffers = initial.buffers if own is None else own.buffers
        if down.numbers["deep"]:
            return Weights(down.model.parameters, buffers)
        deep, parameters = self._deep(task, down).parameters, initial.parameters
        whole = down.weights.get("model")
        parameters[~deep] = down.weights["shallow"].parameters if whole is None else whole.parameters[~deep]
        if own is not None:
            parameters[deep] = own.parameters
        return Weights(parameters, buffers)

    def _deep(self, task: Task, down: Downlink) -> Part:
        return task.layout.part(*str(down.numbers["deep-stages"]).split(","))
