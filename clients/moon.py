"""Client half of MOON: features near those of the received model, and away from those of the last local model."""

import numpy as np
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedsim.algorithm import Fit, Task
from fedsim.clients.frozen import FrozenFeatures
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import ClientState, Downlink, Uplink


class MoonClient(LocalSGD):
    """Expects parameters with `mu` and `tau`. Equation numbers are those of `fedsim.strategies.moon`."""

    def loss(self, task: Task, down: Downlink, state: ClientState) -> Loss | None:
        if self.params.mu == 0:
            return None
        received = FrozenFeatures(task, down.model)
        previous = FrozenFeatures(task, state.weights["previous"] if "previous" in state.weights else task.initial())

        def contrastive(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            features, output = trainer.forward(x)
            near, far = received.of(trainer, x), previous.of(trainer, x)
            contrast: Tensor = self.params.mu * model_contrast(features.flatten(1), near, far, self.params.tau)
            return trainer.objective.loss(output, y) + contrast  # (2)

        return contrastive

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        state.weights["previous"] = fit.weights
        return super().uplink(task, down, state, rng, fit)


def model_contrast(z: Tensor, near: Tensor, far: Tensor, tau: float) -> Tensor:
    """(1), the mean over the mini-batch: -log(a / (a + b)) is softplus(log b - log a)."""
    return softplus((cosine_similarity(z, far) - cosine_similarity(z, near)) / tau).mean()
