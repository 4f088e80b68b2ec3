"""Client half of SPFL: several steps per mini-batch, a probe when the server asks for one, fine-tuning at the very end."""

from dataclasses import replace

import numpy as np

from clients.lessons import at_rate, repeated
from clients.local_sgd import Lesson, LocalSGD
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model, Uplink
from fedsim.vector import Vec


class Probing(LocalSGD):
    """Expects parameters with `steps_per_batch` and `finetune_steps`, `finetune_lr`, `finetune_batch`."""

    def train(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Uplink:
        uplink = super().train(task, down, memory, rng)
        if not down.numbers["probe"]:
            return uplink
        received, lesson = down.vectors["model"], self.lesson(task, down, memory)
        probe = task.fit(received, rng, buffers=down.vectors.get("buffers"), lesson=lesson).model - received
        return replace(uplink, vectors={**uplink.vectors, "probe": probe})

    def lesson(self, task: Task, down: Downlink, memory: Memory) -> Lesson:
        return repeated(self.params.steps_per_batch)

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Vec | Model:
        own, params = down.vectors.get("personal", down.vectors["model"]), self.params
        if not (down.numbers["finetune"] and params.finetune_steps):
            return own
        lesson = at_rate(params.finetune_lr, params.finetune_batch)
        buffers = down.vectors.get("buffers")
        return task.fit(own, rng, buffers=buffers, steps=params.finetune_steps, lesson=lesson).whole
