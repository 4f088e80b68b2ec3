"""Client half of FedKD: mentor and mentee learn from each other, and the mentee's update is sent with low rank."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from fedsim.algorithm import Task
from fedsim.clients.batch_steps import descend
from fedsim.clients.distillation import SHARED, BesideShared, divergence
from fedsim.clients.optimizers import make_optimizer
from fedsim.clients.training import Batch, BatchStep, Trainer
from fedsim.layout import VECTORS, Layout
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Vec


class FedKdClient(BesideShared):
    """Expects parameters with `kl` and `hidden`. Sends the mentee's update as vectors and factors of its matrices. Equation
    numbers are those of `fedsim.strategies.fedkd`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        uplink = super().train(task, down, state, rng)
        delta, layout = uplink.weights["delta"], task.network(SHARED).layout
        arrays = compressed(layout, delta.parameters, float(down.numbers["energy"]))
        return replace(uplink, weights={"delta": delta.only(layout.part(VECTORS))}, arrays=arrays)

    def together(self, task: Task, shared: Trainer, state: ClientState) -> BatchStep:
        kl, hidden = self.params.kl, self.params.hidden
        device = shared.samples.device
        projection = torch.tensor(self._projection(task, state), device=device, requires_grad=True)
        optimizer = make_optimizer(task.config, task.lr, [projection])

        def both(trainer: Trainer, batch: Batch) -> Tensor:
            x, y = batch
            (f_m, out_m), (f_s, out_s) = trainer.forward(x), shared.forward(x)
            mentor, mentee = trainer.objective.loss(out_m, y), shared.objective.loss(out_s, y)
            q = 1 / (mentor + mentee).detach()  # (1)
            if kl:  # (2)
                mentor, mentee = mentor + q * kl * divergence(out_s, out_m), mentee + q * kl * divergence(out_m, out_s)
            if hidden:
                seen = f_s.flatten(1) @ projection.T
                mentor = mentor + q * hidden * mse_loss(f_m.flatten(1), seen.detach())
                mentee = mentee + q * hidden * mse_loss(seen, f_m.flatten(1).detach())
            descend(trainer, mentor)  # (3)
            optimizer.zero_grad()
            descend(shared, mentee)
            optimizer.step()
            state.arrays["projection"] = projection.detach().cpu().numpy()
            return mentee

        return both

    def _projection(self, task: Task, state: ClientState) -> Array:
        if "projection" in state.arrays:
            return state.arrays["projection"]
        return np.eye(task.layout.features, task.network(SHARED).layout.features, dtype=np.float32)


def compressed(layout: Layout, update: Vec, energy: float) -> dict[str, Array]:
    """(4): the matrices of an update by name, as factors where these are smaller."""
    arrays: dict[str, Array] = {}
    for tensor, values in layout.split(update):
        if len(tensor.shape) > 1 and values.any():
            factors = low_rank(values.reshape(len(values), -1), energy)
            arrays |= {tensor.name: values} if factors is None else {f"{tensor.name} factors": factors}
    return arrays


def low_rank(matrix: Array, energy: float) -> Array | None:
    """Rows (sigma, u, v) that keep this share of the squared singular values; None if they are not smaller."""
    if energy >= 1:
        return None
    u, sigma, v = torch.linalg.svd(torch.from_numpy(matrix).double(), full_matrices=False)
    kept = sigma.square().cumsum(0)
    rank = int((kept < energy * kept[-1]).sum()) + 1
    if rank * (1 + sum(matrix.shape)) >= matrix.size:
        return None
    return torch.cat([sigma[:rank, None], u.T[:rank], v[:rank]], dim=1).float().numpy()
