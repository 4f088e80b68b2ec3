"""Learning from another network's output, and training a shared model together with the client's own."""

from abc import abstractmethod

import numpy as np
from torch import Tensor
from torch.nn.functional import kl_div

from fedsim.algorithm import Task
from fedsim.clients.local import own_model
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import BatchStep, Trainer
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights

SHARED = "shared"  # the network that is exchanged


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of the softmax of two outputs, mean over the samples; the teacher gets no gradient."""
    target, found = (output.flatten(0, -2).log_softmax(-1) for output in (teacher.detach(), student))
    return kl_div(found, target, reduction="batchmean", log_target=True)


class BesideShared(LocalSGD):
    """The client's own model, which is never sent, and the network `shared`, which is received as `model` and sent as an
    update, are trained on the same mini-batches."""

    @abstractmethod
    def together(self, task: Task, shared: Trainer, state: ClientState) -> BatchStep:
        """A step of both on a mini-batch, which returns the shared model's loss; the trainer that it is called with
        holds the client's own model."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        shared = task.companion(down.model, SHARED)
        fit = task.fit(own_model(task, state), rng, step=self.together(task, shared, state))
        state.weights["model"] = fit.weights
        delta = shared.weights().delta(down.model)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return own_model(task, state)
