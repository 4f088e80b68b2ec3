"""Client half of layer-wise exchange: the deep part stays here between the rounds in which it travels."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.payload import Downlink, Memory, Model, Uplink


class Layerwise(ClientBehaviour[object]):
    """Trains the whole model; returns its shallow part, and the deep part when the server asks for it."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        start, buffers = self.personalise(task, down, memory, rng)
        fit = task.fit(start, rng, buffers=buffers)
        deep = self._deep(task, down)
        memory.vectors |= {"deep": fit.model[deep], "buffers": fit.buffers}
        vectors = {"shallow": fit.model[~deep]} | ({"deep": fit.model[deep]} if down.numbers["deep"] else {})
        return Uplink(vectors, task.examples, metrics={"loss": fit.loss}, local=fit.whole)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        """The received model, or its shallow part with the client's own deep part; the buffers are its own."""
        buffers = memory.vectors.get("buffers")
        if "model" in down.vectors:
            return Model(down.vectors["model"], buffers)
        deep, model = self._deep(task, down), task.initial()
        model[~deep] = down.vectors["shallow"]
        if "deep" in memory.vectors:
            model[deep] = memory.vectors["deep"]
        return Model(model, buffers)

    def _deep(self, task: Task, down: Downlink) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return task.layout.mask(str(down.numbers["deep-stages"]).split(","))
