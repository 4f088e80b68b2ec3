"""Client half of FedPHP: trains the received model near its private one, which inherits from the result."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedsim.algorithm import Fit, Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.mmd import bandwidths_of, mmd
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights, weighted_sum

HIGHEST, TEMPERATURE = 0.9, 4.0  # of mu; of the teacher


class FedPHPClient(LocalSGD):
    """Expects parameters with `lam` and `by`. Equation numbers are those of `fedsim.strategies.fedphp`."""

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        jobs = int(state.numbers.get("jobs", 0))
        expected = float(down.numbers["participation"]) * float(down.numbers["rounds"])
        share = min(HIGHEST, HIGHEST * jobs / expected)
        private = state.weights.get("private", fit.weights)
        state.weights["private"] = inherited(private, fit.weights, share)  # (2)
        state.numbers["jobs"] = jobs + 1
        return super().uplink(task, down, state, rng, fit)

    def loss(self, task: Task, down: Downlink, state: ClientState) -> Loss | None:
        lam = float(self.params.lam)
        if lam == 0 or "private" not in state.weights:
            return None
        teacher = task.companion(state.weights["private"])
        teacher.network.eval()
        distance = by_features if self.params.by == "mmd" else by_predictions

        def near_private(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            with torch.no_grad():
                fixed = teacher.forward(x)
            features, output = trainer.forward(x)
            return (1 - lam) * trainer.objective.loss(output, y) + lam * distance((features, output), fixed)  # (1)

        return near_private

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return state.weights.get("private", down.model)


def inherited(private: Weights, local: Weights, share: float) -> Weights:
    def mix(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return weighted_sum([old, new], [share, 1 - share])

    return Weights(mix(private.parameters, local.parameters), mix(private.buffers, local.buffers))


def by_features(own: tuple[Tensor, Tensor], fixed: tuple[Tensor, Tensor]) -> Tensor:
    features, targets = own[0].flatten(1), fixed[0].flatten(1)
    return mmd(features, targets, bandwidths_of(features, targets))


def by_predictions(own: tuple[Tensor, Tensor], fixed: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(own[1].flatten(0, -2), (fixed[1].flatten(0, -2) / TEMPERATURE).softmax(1))
