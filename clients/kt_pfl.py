"""Client half of KT-pFL: distills its personal target on the public data, trains on its own, predicts the public data."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from fedsim.algorithm import Task
from fedsim.clients.local import LocalOnly, own_model
from fedsim.clients.training import Batch, Trainer
from fedsim.payload import Array, ClientState, Downlink
from fedsim.weights import Weights


class KtPflClient(LocalOnly):
    """Receives `targets`, C probabilities for each public sample, and sends its `predictions` of these samples. Equation
    numbers are those of `fedsim.strategies.kt_pfl`."""

    def start(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        own, params = own_model(task, state), self.params
        if "targets" not in down.arrays or params.distill_epochs == 0:
            return own
        public = task.samples("public").with_targets(down.arrays["targets"])
        how = {"epochs": params.distill_epochs, "batch_size": params.distill_batch, "lr": params.distill_lr}
        return task.fit(own, rng, samples=public, loss=self.distance, **how).weights

    def distance(self, trainer: Trainer, batch: Batch) -> Tensor:
        """(3): KL(teacher || student) of the softened predictions, a mean over the samples."""
        x, target = batch
        student = log_softmax(trainer.network(x) / self.params.temperature, 1)
        return kl_div(student, target, reduction="batchmean")

    def statistics(self, task: Task, weights: Weights) -> Mapping[str, Array]:
        logits = task.outputs(weights, on="public").astype(np.float64) / self.params.temperature
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return {"predictions": (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)}
