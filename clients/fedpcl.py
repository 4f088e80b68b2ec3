"""Client half of FedPCL: trains features that are near all clients' prototypes of their class, sends its own prototypes."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fedsim.algorithm import Task
from fedsim.clients.heads import IMPOSSIBLE, with_linear_head
from fedsim.clients.local import own_model
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedPclClient(LocalSGD):
    """Expects parameters with `tau`. Receives the `global` prototypes and all clients' `prototypes`, sends its own with
    `counts`. Equation numbers are those of `fedsim.strategies.fedpcl`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        loss = self.loss(task, down, state)
        base, steps = task.layout.part("base"), 0 if loss is None else None
        fit = task.fit(own_model(task, state), rng, train=base, loss=loss, steps=steps)
        found = task.by_class(fit.weights, of="directions")
        lengths = np.linalg.norm(found.means, axis=1, keepdims=True)
        prototypes = found.means / np.where(lengths > 0, lengths, 1)  # (1)
        state.weights["model"], state.arrays["prototypes"] = fit.weights, prototypes
        arrays = {"prototypes": prototypes, "counts": found.counts}
        local = nearest_direction(task, fit.weights, prototypes)
        return Uplink(task.examples, arrays=arrays, metrics={"loss": fit.loss}, local=local)

    def loss(self, task: Task, down: Downlink, state: ClientState) -> Loss | None:
        if not down.arrays:
            return None
        anchors = torch.tensor(np.concatenate([down.arrays["global"][None], down.arrays["prototypes"]]))
        return prototype_contrast(anchors, self.params.tau)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        own = own_model(task, state)
        return nearest_direction(task, own, state.arrays["prototypes"]) if "prototypes" in state.arrays else own


def prototype_contrast(anchors: Tensor, tau: float) -> Loss:
    """(3) with anchors (1 + K) x C x F: G first, then the prototypes of K clients. A class without G is left out."""
    shares = torch.tensor([1.0] + [1 / (len(anchors) - 1)] * (len(anchors) - 1))
    known = anchors[0].any(dim=1)

    def loss(trainer: Trainer, batch: Batch) -> Tensor:
        x, y = batch
        held = known.to(y.device)
        z = normalize(trainer.forward(x)[0].flatten(1))
        logits = torch.einsum("nf,kcf->nck", z, anchors.to(y.device)) / tau
        logits = logits.masked_fill(~held[None, :, None], IMPOSSIBLE)
        terms = cross_entropy(logits, y[:, None].expand(-1, len(anchors)), reduction="none")  # (2)
        value: Tensor = ((terms @ shares.to(y.device)) * held[y]).mean()
        return value

    return loss


def nearest_direction(task: Task, weights: Weights, prototypes: Array) -> Weights:
    """(5) as a linear head over the classes this client holds."""
    return with_linear_head(task.layout, weights, prototypes, np.where(task.labels > 0, 0, IMPOSSIBLE))
