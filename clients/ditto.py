"""Client half of Ditto: on every mini-batch a step of the personal model, then one of the received model."""

import numpy as np
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.fedprox import proximal
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Trainer, one_step
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class DittoClient(LocalSGD):
    """Expects parameters with `lam`. Equation numbers are those of `fedsim.strategies.ditto`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        own = task.companion(self.personalize(task, down, state, rng))
        pulled, plain = one_step(proximal(task.layout, down.model, self.params.lam)), one_step()

        def both(trainer: Trainer, batch: Batch) -> Tensor:
            pulled(own, batch)  # (1)
            return plain(trainer, batch)  # (2)

        fit = task.fit(down.model, rng, step=both)
        state.weights["own"] = personal = own.weights()
        delta = fit.weights.delta(down.model)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=personal)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return state.weights.get("own", down.model)
