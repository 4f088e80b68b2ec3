"""Client half of APPLE: trains its own core and the weights of all cores through their mixture."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.clients.optimizers import SGD, Optimizer, make_optimizer
from fedsim.clients.training import Batch, Trainer
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Vec, Weights

SMALLEST_BASE = 1.5  # of the chances by which cores are asked for


class AppleClient(ClientBehaviour[Any]):
    """Expects parameters with `p_lr`. Receives cores as `peer-ROW` and sends its own. Equation numbers are those of
    `fedsim.strategies.apple`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        row, shares, limit = int(down.numbers["row"]), down.arrays["shares"], int(down.numbers["limit"])
        if limit:  # cores that are not received next time are these
            state.weights |= {name: core.copy() for name, core in down.weights.items()}
        cores = self._cores(task, down, state, len(shares))
        p, penalty = state.arrays.get("p", shares), float(down.numbers["penalty"])
        mixture = Mixture(cores, row, p, shares, penalty, self.params.p_lr)
        before = self.personalize(task, down, state, rng)
        fit = task.fit(Weights(mixture.parameters(), before.buffers), rng, step=mixture.step)
        core = Weights(mixture.core())
        state.weights |= {"core": core, "mixture": fit.weights}
        state.arrays["p"] = mixture.p.cpu().numpy()
        wanted = {"wanted": self._wanted(down, state, row, limit, rng)} if limit else {}
        return Uplink(task.examples, {"model": core}, wanted, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return state.weights["mixture"] if "mixture" in state.weights else task.initial()

    def _cores(self, task: Task, down: Downlink, state: ClientState, count: int) -> Vec:
        """Every client's core: received, kept from an earlier job, or initial."""
        row, initial = int(down.numbers["row"]), task.initial()
        known = {**state.weights, **down.weights, f"peer-{row}": state.weights.get("core", initial)}
        return np.stack([known.get(f"peer-{j}", initial).parameters for j in range(count)])

    def _wanted(self, down: Downlink, state: ClientState, row: int, limit: int, rng: np.random.Generator) -> Array:
        """The cores to receive next: those never received first, then by their weights."""
        p = state.arrays["p"]
        others = np.array([j for j in range(len(p)) if j != row])
        unseen = [j for j in others if f"peer-{j}" not in state.weights]
        first = rng.permutation(np.array(unseen, np.int64))[:limit]
        rest = np.setdiff1d(others, first)
        chances = max(SMALLEST_BASE, int(down.numbers["round"]) * limit / len(p)) ** np.abs(p[rest].astype(np.float64))
        return np.concatenate([first, rng.choice(rest, limit - len(first), replace=False, p=chances / chances.sum())])


class Mixture:
    """c_1 ... c_N as rows and p_i, trained through w_i, which is what the network of a `Trainer` holds."""

    def __init__(self, cores: Vec, row: int, p: Array, shares: Array, penalty: float, p_lr: float) -> None:
        self._cores, self._row, self._penalty, self._p_lr = torch.from_numpy(cores), row, penalty, p_lr
        self.p, self._shares = torch.tensor(p), torch.tensor(shares)
        self._optimizers: list[Optimizer] = []

    def parameters(self) -> Vec:
        mixed: Vec = (self.p @ self._cores).cpu().numpy()  # (1)
        return mixed

    def core(self) -> Vec:
        core: Vec = self._cores[self._row].cpu().numpy().copy()
        return core

    def step(self, trainer: Trainer, batch: Batch) -> Tensor:
        if not self._optimizers:
            self._start(trainer)
        loss = trainer.backward(batch)
        slopes = [torch.zeros_like(w) if w.grad is None else w.grad for w in trainer.parameters]
        slope = torch.cat([each.reshape(-1) for each in slopes])
        self._own.grad = self.p[self._row] * slope
        self.p.grad = self._cores @ slope + self._penalty * (self.p - self._shares)
        for optimizer in self._optimizers:
            optimizer.step()  # (2), (3)
        with torch.no_grad():
            mixed = torch.split(self.p @ self._cores, [w.numel() for w in trainer.parameters])
            for w, values in zip(trainer.parameters, mixed, strict=True):
                w.copy_(values.view_as(w))
        return loss

    def _start(self, trainer: Trainer) -> None:
        """Moves everything to the device of the network and makes the optimizers."""
        device = trainer.samples.device
        self._cores, self.p, self._shares = (t.to(device) for t in (self._cores, self.p, self._shares))
        self._own = self._cores[self._row]  # a view: its steps change the row
        momentum = trainer.config.momentum
        self._optimizers = [
            make_optimizer(trainer.config, trainer.lr, [self._own]),
            SGD([self.p], self._p_lr, momentum),
        ]
