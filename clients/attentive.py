"""Client half of message passing: proximal training towards the cloud model; the client's own model is what it uses."""

import numpy as np

from clients.proximal import Proximal
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Uplink
from fedsim.vector import Vec


class Attentive(Proximal):
    """Expects parameters with `start`: cloud (the received model) or own."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        own = self.params.start == "own"
        start = self.personalise(task, down, memory, rng) if own else down.vectors["model"]
        fit = task.fit(start, rng, buffers=memory.vectors.get("buffers"), lesson=self.lesson(task, down, memory))
        memory.vectors |= {"model": fit.model, "buffers": fit.buffers}
        return Uplink({"model": fit.model}, task.examples, metrics={"loss": fit.loss}, local=fit.model)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec:
        return memory.vectors["model"] if "model" in memory.vectors else down.vectors["model"]
