"""Client half of FedProto: trains its own model towards the global prototypes, and sends its own prototypes."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.heads import IMPOSSIBLE, with_linear_head
from fedsim.clients.local import LocalOnly, own_model
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import Array, ClientState, Downlink
from fedsim.weights import Weights


class FedProtoClient(LocalOnly):
    """Expects parameters with `lam`. Receives and sends `prototypes` with `counts`. Equation numbers are those of
    `fedsim.strategies.fedproto`."""

    def loss(self, task: Task, down: Downlink) -> Loss | None:
        lam = float(self.params.lam)
        prototypes = torch.tensor(down.arrays["prototypes"])
        known = torch.tensor(down.arrays["counts"] > 0)

        def towards_prototypes(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            features, output = trainer.forward(x)
            distance: Tensor = (features.flatten(1) - prototypes.to(y.device)[y]) * known.to(y.device)[y, None]
            return trainer.objective.loss(output, y) + lam * distance.square().mean()  # (2)

        return towards_prototypes

    def statistics(self, task: Task, weights: Weights) -> Mapping[str, Array]:
        found = task.by_class(weights)  # (1)
        return {"prototypes": found.means, "counts": found.counts}

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        """(4) as a linear head, over the classes this client holds; its own head if none of them has a prototype."""
        own, prototypes = own_model(task, state), down.arrays["prototypes"]
        possible = (down.arrays["counts"] > 0) & (task.labels > 0)
        if not possible.any():
            return own
        bias = np.where(possible, -np.square(prototypes).sum(axis=1) / 2, IMPOSSIBLE)
        return with_linear_head(task.layout, own, prototypes, bias)
