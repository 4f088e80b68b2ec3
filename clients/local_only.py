"""Client half of local training: the model lives in the client's memory and never travels."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.config import NoParams
from fedsim.payload import Downlink, Memory, Uplink
from fedsim.vector import Vec


class LocalOnly(ClientBehaviour[NoParams]):
    """Goes on from where it left off."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        start = memory.vectors["model"] if "model" in memory.vectors else task.initial()
        fit = task.fit(start, rng, buffers=memory.vectors.get("buffers"))
        memory.vectors |= {"model": fit.model, "buffers": fit.buffers}
        return Uplink({}, task.examples, metrics={"loss": fit.loss}, local=fit.model)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec:
        return memory.vectors["model"] if "model" in memory.vectors else task.initial()
