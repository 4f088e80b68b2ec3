"""Learning from another network's output, and training the received model together with a private one."""

from abc import abstractmethod

import numpy as np
from torch import Tensor
from torch.nn.functional import kl_div

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import BatchStep, Trainer
from fedsim.payload import ClientState, Downlink, PersonalModel, Uplink
from fedsim.weights import Weights


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of the softmax of two outputs, mean over the samples; the teacher gets no gradient."""
    target, found = (output.flatten(0, -2).log_softmax(-1) for output in (teacher.detach(), student))
    return kl_div(found, target, reduction="batchmean", log_target=True)


class PrivateModel(LocalSGD):
    """The received model and a private one are trained on the same mini-batches; the private one is never sent."""

    @property
    @abstractmethod
    def private_network(self) -> str:
        """The name of the private model's network."""

    @abstractmethod
    def together(self, task: Task, private: Trainer, state: ClientState) -> BatchStep:
        """A step of both models on a mini-batch; the trainer that it is called with holds the received model."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        private = task.companion(self.own(task, state), self.private_network)
        fit = task.fit(down.model, rng, step=self.together(task, private, state))
        state.weights["private"] = private.weights()
        delta, local = fit.weights.delta(down.model), self.personalize(task, down, state, rng)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=local)

    def own(self, task: Task, state: ClientState) -> Weights:
        """The private model as it is now: at first the initial one of its network."""
        return state.weights["private"] if "private" in state.weights else task.initial(self.private_network)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> PersonalModel:
        return PersonalModel(self.own(task, state), network=self.private_network)
