"""Client half of FedCP: features of each sample are divided between the global and the personal head."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import joint
from fedsim.clients.heads import head_matrix
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.mmd import mmd
from fedsim.clients.training import Batch, Trainer, part_of
from fedsim.payload import ClientState, Downlink, PersonalModel, Uplink
from fedsim.weights import Weights

BANDWIDTHS = (20, 30, 40, 100)  # of exp(-|u - v|^2 / b): the authors' 10, 15, 20, 50 in exp(-|u - v|^2 / 2a)


def make_cpn(shape: tuple[int, ...], classes: int, features: int) -> nn.Module:
    """The conditional policy network; a softmax over the two halves of its output is the gate."""
    return nn.Sequential(nn.Linear(features, 2 * features), nn.LayerNorm(2 * features), nn.ReLU())


@dataclass(frozen=True)
class Gate:
    """Equations (2) and (3), for a network with the personal head."""

    cpn: nn.Module
    context: Tensor  # k
    received: nn.Module  # the received model, for its head

    def predict(self, trainer: Trainer, inputs: Tensor) -> Tensor:
        return self.output(trainer, trainer.forward(inputs)[0])

    def output(self, trainer: Trainer, features: Tensor, noise: np.random.Generator | None = None) -> Tensor:
        policy = self.cpn(features * self.context).unflatten(-1, (2, -1))
        if noise is not None:
            exponential = noise.standard_exponential(tuple(policy.shape), np.float32).clip(np.finfo(np.float32).tiny)
            policy = policy - torch.from_numpy(exponential).to(policy.device).log()  # Gumbel: -log of an exponential
        r, s = policy.softmax(-2).unbind(-2)  # (2)
        frozen: Tensor = part_of(self.received, "head")(s * features)
        return trainer.head(r * features) + frozen  # (3)


class FedCPClient(LocalSGD):
    """Expects parameters with `lam`. Receives `model` and `cpn`, sends updates of both. Equation numbers are those of
    `fedsim.strategies.fedcp`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        start, policy = self._start(task, down, state), self._policy(task, down)
        cpn, noise = task.companion(policy, "cpn"), rng.spawn(1)[0]
        gate = self._gate(task, down, start, cpn.network)

        def loss(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            features, _ = trainer.forward(x)
            value = trainer.objective.loss(gate.output(trainer, features, noise), y)
            if self.params.lam:
                with torch.no_grad():
                    received = part_of(gate.received, "base")(x)
                value += self.params.lam * mmd(features.flatten(1), received.flatten(1), BANDWIDTHS)  # (4)
            return value

        fit, head = task.fit(start, rng, step=joint(cpn, loss)), task.layout.part("head")
        state.weights["head"] = fit.weights.only(head)
        delta = fit.weights.delta(down.model)
        delta.parameters[head.parameters] /= 2  # (5)
        local = PersonalModel(fit.weights, self._gate(task, down, fit.weights, cpn.network).predict)
        updates = {"delta": delta, "cpn": cpn.weights().delta(policy)}
        return Uplink(task.examples, updates, metrics={"loss": fit.loss}, local=local)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> PersonalModel:
        start, cpn = self._start(task, down, state), task.companion(self._policy(task, down), "cpn").network
        return PersonalModel(start, self._gate(task, down, start, cpn).predict)

    def _start(self, task: Task, down: Downlink, state: ClientState) -> Weights:
        """The received base with the client's own head."""
        head = state.weights.get("head")
        return down.model if head is None else down.model.with_part(task.layout.part("head"), head)

    def _policy(self, task: Task, down: Downlink) -> Weights:
        return Weights(task.initial("cpn").parameters + down.weights["cpn"].parameters)

    def _gate(self, task: Task, down: Downlink, weights: Weights, cpn: nn.Module) -> Gate:
        received = task.companion(down.model).network.eval().requires_grad_(False)
        rows = torch.from_numpy(head_matrix(task.layout, weights.parameters))
        device = next(received.parameters()).device
        return Gate(cpn, nn.functional.normalize(rows.sum(0), dim=0).to(device), received)  # (1)
