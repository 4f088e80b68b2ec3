"""Client half of FedALA: learns how to combine the received model with its own, then trains from the combination."""

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import Batch, Trainer, flatten
from fedsim.layout import Layout, Part
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Vec, Weights

WATCHED = 10  # epochs whose last losses must agree


class FedALAClient(LocalSGD):
    """Expects the parameters of `fedsim.strategies.fedala`, whose equation numbers are used here."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        start, rates = self._adapted(task, down, state, rng)
        fit = task.fit(start, rng)  # (3)
        state.weights["own"] = fit.weights
        if rates is not None:
            state.arrays["rates"] = rates
        return self.uplink(task, down, state, rng, fit)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return self._adapted(task, down, state, rng)[0]

    def _adapted(
        self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator
    ) -> tuple[Weights, Vec | None]:
        """theta_k, and A_k over the top layers; the received model and the present A_k where there is nothing to learn."""
        params, received, known = self.params, down.model, state.arrays.get("rates")
        top, own = task.layout.part(*params.top), state.weights.get("own")
        if own is None or np.array_equal(own.only(top).parameters, received.only(top).parameters):
            return received, known
        ala = Adaptation(task.layout, top, own, received, known, params.eta)
        rng = rng.spawn(1)[0]  # so that the mini-batches of the training stay as they are
        part, _ = task.held_out(min(1 - params.share, 1 - 1 / task.examples), rng)
        theta, losses = ala.start, list[float]()
        while len(losses) < (params.epochs if known is None else 1) and not self._agree(losses):
            theta = part.fit(theta, rng, train=top, epochs=1, step=ala.step).weights
            losses.append(ala.last_loss)
        return Weights(theta.parameters, received.buffers), ala.rates()

    def _agree(self, losses: list[float]) -> bool:
        return len(losses) >= WATCHED and float(np.std(losses[-WATCHED:])) < self.params.threshold


class Adaptation:
    """A_k of the top tensors, and the step that learns it."""

    def __init__(
        self, layout: Layout, top: Part, own: Weights, received: Weights, rates: Vec | None, eta: float
    ) -> None:
        self._eta, self.last_loss = eta, 0.0
        full = np.ones(layout.size, np.float32)
        if rates is not None:
            full[top.parameters] = rates

        def tensors(vector: Vec) -> list[Tensor]:
            chosen = {name for name, place in layout.slices.items() if top.parameters[place].all()}
            return [torch.tensor(values) for entry, values in layout.split(vector) if entry.name in chosen]

        self._own, self._received, self._rates = tensors(own.parameters), tensors(received.parameters), tensors(full)
        self.start = received.with_part(top, Weights(flatten(self._mixed()), received.only(top).buffers))

    def step(self, trainer: Trainer, batch: Batch) -> Tensor:
        """(2), and (1) with the new A_k in the network."""
        loss = trainer.backward(batch)
        thetas = [parameter for parameter in trainer.parameters if parameter.requires_grad]
        self._to(thetas[0].device)
        with torch.no_grad():
            for theta, rate, own, w in zip(thetas, self._rates, self._own, self._received, strict=True):
                if theta.grad is not None:
                    rate.sub_(self._eta * theta.grad * (w - own)).clamp_(0, 1)
            for theta, mixed in zip(thetas, self._mixed(), strict=True):
                theta.copy_(mixed)
        self.last_loss = float(loss.detach())
        return loss

    def rates(self) -> Vec:
        return flatten(self._rates)

    def _mixed(self) -> list[Tensor]:
        """(1), exact where A_k is 0 or 1."""
        return [torch.lerp(own, w, rate) for own, w, rate in zip(self._own, self._received, self._rates, strict=True)]

    def _to(self, device: torch.device) -> None:
        self._own, self._received, self._rates = (
            [tensor.to(device) for tensor in tensors] for tensors in (self._own, self._received, self._rates)
        )
