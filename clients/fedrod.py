"""Client half of FedRoD: on every mini-batch a step of the generic model and one of the personal head."""

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import joint
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Trainer
from fedsim.errors import ConfigError
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedRoDClient(LocalSGD):
    """Expects parameters with `gamma`. Equation numbers are those of `fedsim.strategies.fedrod`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        head, prior = task.layout.part("head"), log_prior(task.labels, self.params.gamma)
        own = task.companion(down.model.with_part(head, personal_head(task, state)), train=head)

        def losses(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            features, output = trainer.forward(x)
            generic = trainer.objective.loss(output + prior.to(output.device), y)  # (1)
            return generic + trainer.objective.loss(output.detach() + own.head(features.detach()), y)  # (2)

        fit = task.fit(down.model, rng, step=joint(own, losses))
        state.weights["head"] = own.weights().only(head)
        delta, local = fit.weights.delta(down.model), with_personal_head(task, fit.weights, state)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=local)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return with_personal_head(task, down.model, state) if "head" in state.weights else down.model


def log_prior(counts: Array, gamma: float) -> Tensor:
    """gamma log n of every class: -infinity for a class without samples, which the loss then leaves out."""
    if not counts.size:
        raise ConfigError("fedrod balances classes, and the data of this run has none")
    return gamma * torch.tensor(counts, dtype=torch.float32).log() if gamma else torch.zeros(len(counts))


def personal_head(task: Task, state: ClientState) -> Weights:
    """psi_k; 0 before the first job. Raises ConfigError if the model's head is no linear layer."""
    size = len(task.labels) * (task.layout.features + 1)  # a matrix and a bias
    return state.weights.get("head", Weights(np.zeros(size, np.float32)))


def with_personal_head(task: Task, model: Weights, state: ClientState) -> Weights:
    """(4): the sum of both heads is one linear head."""
    head, own = task.layout.part("head"), personal_head(task, state)
    return model.with_part(head, Weights(model.only(head).parameters + own.parameters))
