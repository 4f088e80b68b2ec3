"""Client half of SCAFFOLD: local SGD with every gradient corrected by c - c_i."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Fit, Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.optimizers import step_weights
from fedsim.clients.training import Batch, GradientHook, Trainer
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Vec, Weights


class ScaffoldClient(LocalSGD):
    """Expects parameters with `option`. Equation numbers are those of `fedsim.strategies.scaffold`."""

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        received = down.model
        own = self._own(state, received)
        if self.params.option == 1:
            renewed = full_gradient(task, received, rng)
        else:
            length = task.lr * step_weights(fit.steps, task.config.momentum)
            moved = received.parameters - fit.weights.parameters
            mean = moved / np.float32(length) if length else np.zeros_like(own)
            renewed = own - down.arrays["control"] + mean  # (2)
        state.arrays["control"] = renewed
        delta = fit.weights.delta(received)
        metrics = {"loss": fit.loss}
        return Uplink(task.examples, {"delta": delta}, {"control": renewed - own}, metrics=metrics, local=fit.weights)

    def gradient_hook(self, task: Task, down: Downlink, state: ClientState) -> GradientHook:
        correction = down.arrays["control"] - self._own(state, down.model)
        parts = [torch.tensor(values) for _, values in task.layout.split(correction)]

        def correct(parameters: Sequence[Tensor]) -> None:
            for parameter, part in zip(parameters, parts, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(part.to(parameter.device))  # (1)

        return correct

    def _own(self, state: ClientState, like: Weights) -> Vec:
        return state.arrays["control"] if "control" in state.arrays else np.zeros_like(like.parameters)


def full_gradient(task: Task, model: Weights, rng: np.random.Generator) -> Vec:
    """The gradient of the mean loss over all local data, from one pass of mini-batches without a step."""
    total: list[Tensor] = []

    def add(trainer: Trainer, batch: Batch) -> Tensor:
        loss, share = trainer.backward(batch), len(batch[1]) / task.examples
        found = [torch.zeros_like(p) if p.grad is None else share * p.grad for p in trainer.parameters]
        total[:] = [a + b for a, b in zip(total, found, strict=True)] if total else found
        return loss

    task.fit(model, rng, epochs=1, step=add)
    flat: Vec = torch.cat([part.reshape(-1) for part in total]).cpu().numpy()
    return flat
