"""Client half of FedGen: beside its data, a client learns from generated features of all classes."""

import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.distillation import divergence
from fedsim.clients.generator import Generator, Sizes
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Loss, Trainer
from fedsim.payload import ClientState, Downlink


class FedGenClient(LocalSGD):
    """Expects parameters with `noise` and `hidden`. Receives `model` and, after the first round, the `generator` with all
    clients' `labels`; sends its update. Equation numbers are those of `fedsim.strategies.fedgen`."""

    def loss(self, task: Task, down: Downlink, state: ClientState) -> Loss | None:
        if "generator" not in down.weights:
            return None
        alpha, beta, labels = float(down.numbers["alpha"]), float(down.numbers["beta"]), down.arrays["labels"]
        sizes = Sizes(self.params.noise, len(labels), self.params.hidden, task.layout.features)
        generator, chances = Generator(sizes, down.weights["generator"]).eval(), labels / labels.sum()

        def generated(trainer: Trainer, y: Tensor) -> Tensor:
            """The output of the head on generated features of these labels."""
            with torch.no_grad():
                features = generator.to(y.device)(generator.noise(len(y), trainer.rng).to(y.device), y)
            return trainer.head(features)

        def loss(trainer: Trainer, batch: Batch) -> Tensor:  # (3)
            x, y = batch
            output = trainer.network(x)
            value = trainer.objective.loss(output, y)
            if alpha:
                drawn = torch.from_numpy(trainer.rng.choice(len(labels), len(y), p=chances)).to(y.device)
                value = value + alpha * trainer.objective.loss(generated(trainer, drawn), drawn)
            if beta:
                value = value + beta * divergence(generated(trainer, y), output)
            return value

        return loss
