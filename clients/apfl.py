"""Client half of APFL: trains the received model and, beside it, the local part of the mixture that the client uses."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.optimizers import Optimizer, make_optimizer
from fedsim.clients.training import Batch, Trainer, assign, flatten, tensors_of
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Vec, Weights


class ApflClient(LocalSGD):
    """Expects parameters with `alpha` and `adapt`. Equation numbers are those of `fedsim.strategies.apfl`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        own, alpha = self._own(task, down, state)
        pair = Pair(task, own, alpha, self.params.adapt)
        fit = task.fit(down.model, rng, step=pair.step)
        state.weights["own"] = own = pair.weights()
        state.numbers["alpha"] = pair.alpha
        delta, metrics = fit.weights.delta(down.model), {"loss": fit.loss, "alpha": pair.alpha}
        local = Weights(mix(own.parameters, fit.weights.parameters, pair.alpha), own.buffers)
        return Uplink(task.examples, {"delta": delta}, metrics=metrics, local=local)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        own, alpha = self._own(task, down, state)
        return Weights(mix(own.parameters, down.model.parameters, alpha), own.buffers)

    def _own(self, task: Task, down: Downlink, state: ClientState) -> tuple[Weights, float]:
        """v_i with the mixture's buffers, and alpha_i. At first v_i is the initial model with the received buffers."""
        first = Weights(task.initial().parameters, down.model.buffers)
        return state.weights.get("own", first), float(state.numbers.get("alpha", self.params.alpha))


def mix(own: Vec, shared: Vec, alpha: float) -> Vec:
    return np.float32(alpha) * own + np.float32(1 - alpha) * shared


class Pair:
    """v_i (`own`) and alpha_i, trained along with the model w_i of a `Trainer`. The mixture has buffers of its own."""

    def __init__(self, task: Task, own: Weights, alpha: float, adapt: str) -> None:
        self.alpha, self._adapts, self._once = alpha, adapt != "never", adapt == "round"
        self.own = [torch.tensor(values) for _, values in task.layout.split(own.parameters)]
        self.buffers: list[Tensor] = []
        self._start = own.buffers
        self._optimizer: Optimizer | None = None

    def weights(self) -> Weights:
        buffers = flatten(self.buffers) if self._optimizer else self._start
        return Weights(flatten(self.own), buffers)

    def step(self, trainer: Trainer, batch: Batch) -> Tensor:
        optimizer = self._on_device(trainer)
        loss = trainer.backward(batch)
        trainer.optimizer.step()  # (1)
        shared, slopes = self._mixture_gradient(trainer, batch)
        slope = sum(float(((v - w) * g).sum()) for v, w, g in zip(self.own, shared, slopes, strict=True))
        for v, g in zip(self.own, slopes, strict=True):
            v.grad = self.alpha * g
        optimizer.step()  # (2)
        if self._adapts:
            self.alpha = min(1.0, max(0.0, self.alpha - trainer.lr * slope))  # (3)
            self._adapts = not self._once
        return loss

    def _mixture_gradient(self, trainer: Trainer, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters w_i, and the gradient at the mixture; the trainer's network is unchanged afterwards."""
        shared, buffers = copies(trainer.parameters), tensors_of(trainer.network)[1]
        statistics = copies(buffers)
        _assign(buffers, self.buffers)
        _assign(
            trainer.parameters, [self.alpha * v + (1 - self.alpha) * w for v, w in zip(self.own, shared, strict=True)]
        )
        trainer.backward(batch)
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in trainer.parameters]
        self.buffers = copies(buffers)
        _assign(buffers, statistics)
        _assign(trainer.parameters, shared)
        return shared, slopes

    def _on_device(self, trainer: Trainer) -> Optimizer:
        """The optimizer of v_i. The first call moves v_i and the mixture's buffers to the device of the network."""
        if self._optimizer is None:
            self.own = [v.to(w.device) for v, w in zip(self.own, trainer.parameters, strict=True)]
            self.buffers = copies(tensors_of(trainer.network)[1])
            assign(self.buffers, self._start)
            self._optimizer = make_optimizer(trainer.config, trainer.lr, self.own)
        return self._optimizer


def copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _assign(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
