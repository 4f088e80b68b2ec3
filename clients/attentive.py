"""Client half of message passing: proximal training towards the cloud model; the client's own model is what it uses."""

import numpy as np

from clients.proximal import Proximal
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model, Uplink


class Attentive(Proximal):
    """Expects parameters with `start`: cloud (the received model) or own."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        own, buffers = self.personalise(task, down, memory, rng)
        start = own if self.params.start == "own" else down.vectors["model"]
        fit = task.fit(start, rng, buffers=buffers, lesson=self.lesson(task, down, memory))
        memory.vectors |= {"model": fit.model, "buffers": fit.buffers}
        return Uplink({"model": fit.model}, task.examples, metrics={"loss": fit.loss}, local=fit.whole)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        kept = memory.vectors
        return Model(kept["model"], kept["buffers"]) if "model" in kept else Model(down.vectors["model"], None)
