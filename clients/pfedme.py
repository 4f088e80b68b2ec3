"""Client half of pFedMe: the trained model is personal; a local copy of the global model moves towards it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, BatchStep, Trainer, flatten
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class PFedMeClient(LocalSGD):
    """Expects parameters with `lam`, `inner_steps`, `inner_lr` and `mu`: equation (2) of `fedsim.strategies.pfedme`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        received = down.model.parameters
        copies = [torch.tensor(values) for _, values in task.layout.split(received)]
        fit = task.fit(down.model, rng, step=self._follow(copies))
        state.weights["personal"] = fit.weights
        delta = Weights(flatten(copies) - received, fit.weights.buffers)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return state.weights.get("personal", down.model)

    def _follow(self, copies: Sequence[Tensor]) -> BatchStep:
        params = self.params

        def step(trainer: Trainer, batch: Batch) -> Tensor:
            losses = []
            for _ in range(params.inner_steps):
                losses.append(trainer.backward(batch).detach())
                with torch.no_grad():
                    for theta, copy in zip(trainer.parameters, copies, strict=True):
                        pull = params.lam * (theta - copy.to(theta.device)) + params.mu * theta
                        theta.sub_(params.inner_lr * (pull if theta.grad is None else theta.grad + pull))
            for theta, copy in zip(trainer.parameters, copies, strict=True):
                copy.add_(theta.detach().to(copy.device) - copy, alpha=params.lam * trainer.lr)
            return losses[0]

        return step
