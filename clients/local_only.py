"""Client half of local training: the model lives in the client's memory and never travels."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.config import NoParams
from fedsim.payload import Downlink, Memory, Model, Uplink


class LocalOnly(ClientBehaviour[NoParams]):
    """Goes on from where it left off."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        start, buffers = self.personalise(task, down, memory, rng)
        fit = task.fit(start, rng, buffers=buffers)
        memory.vectors |= {"model": fit.model, "buffers": fit.buffers}
        return Uplink({}, task.examples, metrics={"loss": fit.loss}, local=fit.whole)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        kept = memory.vectors
        return Model(kept["model"], kept["buffers"]) if "model" in kept else Model(task.initial(), None)
