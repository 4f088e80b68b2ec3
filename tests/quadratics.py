"""Federations of quadratic functions f_i(w) = 1/2 sum_k a_ik (w_k - b_ik)^2: real halves of algorithms, known optimum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clients.local_sgd import Batch, Trainer, one_step
from fedsim import registry
from fedsim.algorithm import Fit
from fedsim.config import RunConfig
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Memory
from fedsim.vector import Layout, Vec
from fedsim.vector import Tensor as Entry

Numbers = Any  # float64 arrays


class QuadraticTrainer(Trainer):
    """The one training loop, on a quadratic instead of a network. It also notes the gradients it met."""

    curve: tuple[Tensor, Tensor]
    met: list[Numbers]

    def backward(self, batch: Batch) -> Tensor:
        self.optimizer.zero_grad()
        (w,), (a, b) = self.parameters, self.curve
        loss = 0.5 * (a * (w - b) ** 2).sum()
        torch.autograd.backward(loss)
        assert w.grad is not None
        self.met.append(w.grad.numpy().astype(np.float64))
        return loss


class Weights(nn.Module):
    def __init__(self, start: Vec) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start))


@dataclass
class QuadraticTask:
    """A client that satisfies the Task contract; every mini-batch is the whole function."""

    a: Numbers
    b: Numbers
    config: RunConfig
    examples: int = 1

    def __post_init__(self) -> None:
        self.layout = Layout((Entry("w", (len(self.b),), "head"),))
        self.met: list[Numbers] = []

    def initial(self) -> Vec:
        return np.zeros(len(self.b), np.float32)

    def fit(self, start: Vec, rng: np.random.Generator, **how: Any) -> Fit:
        model = Weights(start)
        trainer = QuadraticTrainer(model, torch.zeros(1, 1, 1, 1), torch.zeros(1), self.config, rng)
        trainer.curve = torch.tensor(self.a, dtype=torch.float32), torch.tensor(self.b, dtype=torch.float32)
        self.met = trainer.met = []
        steps = how.get("epochs") or how.get("steps") or self.config.local_steps
        loss = trainer.descend(steps, how.get("lesson") or one_step())
        return Fit(model.w.detach().numpy(), np.empty(0, np.float32), loss, steps)

    def accuracy(self, model: Vec, buffers: Vec | None = None) -> float | None:
        return None


class Federation:
    """An algorithm on quadratics, driven by hand: everyone, or those who are named, in each round."""

    def __init__(
        self, name: str, a: Numbers, b: Numbers, *, steps: int, lr: float, momentum: float = 0.0, **params: Any
    ):
        algorithm = registry.find("algorithm", name)
        self.config = RunConfig(clients=len(a), local_steps=steps, lr=lr, momentum=momentum)
        self.tasks = [QuadraticTask(np.asarray(x), np.asarray(y), self.config) for x, y in zip(a, b, strict=True)]
        clients = [Client(i, i, 1, 1, (1,)) for i in range(len(a))]
        fleet = Fleet(clients, self.tasks[0].layout, self.tasks[0].initial(), np.empty(0, np.float32))
        self.server = algorithm.server(algorithm.params(**params), self.config)
        self.server.enlist(fleet)
        self.client = registry.load(algorithm.client)(algorithm.params(**params))
        self.memories = [Memory() for _ in a]
        self.state = self.server.init(fleet.theta, fleet)
        self.step = 0

    def round(self, *who: int) -> Any:
        arrivals = []
        for i in who or range(len(self.tasks)):
            down = self.server.instruct(self.state, i)
            uplink = self.client.train(self.tasks[i], down, self.memories[i], np.random.default_rng(0))
            arrivals.append(Arrival(i, self.step, uplink, 0.0, 1.0))
        self.state = self.server.update(self.state, arrivals)
        self.step += 1
        return self.state
