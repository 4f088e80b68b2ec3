"""The client half of every algorithm that trains plainly, and the base of most others."""

from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Fit, Task
from fedsim.clients.training import BatchStep, GradientHook, Loss
from fedsim.payload import ClientState, Downlink, Uplink


class LocalSGD(ClientBehaviour[Any]):
    """Trains from the received model and sends the difference. Subclasses change the loss, the gradient or the step."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        return self.uplink(task, down, state, rng, self.fit(task, down, state, rng))

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        """What the outcome of training sends to the server, and leaves in `state`."""
        delta = fit.weights.delta(down.model)
        return Uplink(task.examples, {"delta": delta}, metrics={"loss": fit.loss}, local=fit.weights)

    @property
    def sends_delta_alone(self) -> bool:
        """Whether `uplink` is the one of this class: then updates can be averaged without making each of them."""
        return type(self).uplink is LocalSGD.uplink

    def fit(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Fit:
        """Local training from the received model, with this class's loss, gradient hook or batch step."""
        loss, gradient = self.loss(task, down, state), self.gradient_hook(task, down, state)
        return task.fit(down.model, rng, loss=loss, gradient=gradient, step=self.batch_step(task, down, state))

    def loss(self, task: Task, down: Downlink, state: ClientState) -> Loss | None:
        """The loss of a mini-batch; None: the objective's."""
        return None

    def gradient_hook(self, task: Task, down: Downlink, state: ClientState) -> GradientHook | None:
        """What changes the gradients before each step; None: nothing."""
        return None

    def vectorizes(self, task: Task, down: Downlink, state: ClientState) -> bool:
        """Whether many clients may be trained at once: training is `fit` with a gradient hook at most."""
        own, plain = type(self), LocalSGD
        replaced = own.train is not plain.train or own.fit is not plain.fit
        return not replaced and self.loss(task, down, state) is None and self.batch_step(task, down, state) is None

    def batch_step(self, task: Task, down: Downlink, state: ClientState) -> BatchStep | None:
        """What is done with each mini-batch; None: one step of the optimizer."""
        return None
