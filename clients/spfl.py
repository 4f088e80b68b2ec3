"""Client half of SPFL: several steps per mini-batch, a probe on request, fine-tuning after the last round."""

from dataclasses import replace

import numpy as np

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import at_rate, repeated
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import BatchStep
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class SpflClient(LocalSGD):
    """Expects parameters with `steps_per_batch` and `finetune_steps`, `finetune_lr`, `finetune_batch`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        uplink = super().train(task, down, state, rng)
        if not down.numbers["probe"]:
            return uplink
        probe = self.fit(task, down, state, rng).weights.parameters - down.model.parameters
        return replace(uplink, weights={**uplink.weights, "probe": Weights(probe)})

    def batch_step(self, task: Task, down: Downlink, state: ClientState) -> BatchStep:
        return repeated(self.params.steps_per_batch)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        own, params = down.weights.get("personal", down.model), self.params
        if not (down.numbers["finetune"] and params.finetune_steps):
            return own
        step = at_rate(params.finetune_lr, params.finetune_batch)
        return task.fit(own, rng, steps=params.finetune_steps, step=step).weights
