"""Federations of quadratic functions f_i(w) = 1/2 sum_k a_ik (w_k - b_ik)^2: real halves, known optimum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedsim import registry
from fedsim.algorithm import ClassStatistics, Dataset, Fit, Statistic
from fedsim.clients.finetuning import personal_model
from fedsim.clients.objectives import Direction
from fedsim.clients.training import BatchStep, GradientHook, Loss, Samples, Trainer, one_step, steps_of, weights_of
from fedsim.config import RunConfig
from fedsim.layout import Layout, Part
from fedsim.layout import Tensor as Entry
from fedsim.payload import Arrival, ClientState, Metrics, PersonalModel, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights
from tests.equations.halves import params_of

Numbers = Any  # float64 arrays


class Point(nn.Module):
    """A network whose output is its only parameter."""

    def __init__(self, start: Weights) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start.parameters))

    def forward(self, x: Tensor) -> Tensor:
        return self.w


class Quadratic:
    """The objective 1/2 sum_k a_k (w_k - b_k)^2, whatever the targets are."""

    metrics: ClassVar[Mapping[str, Direction]] = {"loss": "min"}

    def __init__(self, a: Numbers, b: Numbers) -> None:
        self._a, self._b = torch.tensor(a, dtype=torch.float32), torch.tensor(b, dtype=torch.float32)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (self._a * (output - self._b) ** 2).sum()

    def measure(self, output: Tensor, target: Tensor) -> tuple[dict[str, float], int]:
        return {"loss": float(self.loss(output, target))}, 1


@dataclass
class QuadraticTask:
    """A client that satisfies the Task contract; every mini-batch is the whole function.

    `met` holds the gradients of the last training.
    """

    a: Numbers
    b: Numbers
    config: RunConfig
    examples: int

    def __post_init__(self) -> None:
        self.layout = Layout((Entry("w", (len(self.b),), "head"),))
        self.lr, self.batches_read = self.config.lr, 0
        self.labels = np.array([self.examples])
        self.met: list[Numbers] = []

    def initial(self, network: str = "model") -> Weights:
        return Weights(np.zeros(len(self.b), np.float32))

    def fit(
        self,
        start: Weights,
        rng: np.random.Generator,
        *,
        train: Part | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        loss: Loss | None = None,
        gradient: GradientHook | None = None,
        step: BatchStep | None = None,
    ) -> Fit:
        trainer = self._trainer(start, rng, train)
        self.met = []
        trainer.parameters[0].register_hook(lambda slope: self.met.append(slope.numpy().astype(np.float64)))
        steps = steps_of(self.examples, self.config, epochs) if steps is None else steps
        mean = trainer.run(steps, step or one_step(gradient, loss))
        return Fit(weights_of(trainer.network), mean, steps)

    def companion(self, start: Weights, network: str = "model", train: Part | None = None) -> Trainer:
        return self._trainer(start, np.random.default_rng(0), train)

    def evaluate(
        self, weights: Weights, on: Dataset = "test", predict: Any = None, network: str = "model"
    ) -> Metrics | None:
        return Quadratic(self.a, self.b).measure(torch.tensor(weights.parameters), torch.zeros(1))[0]

    def by_class(self, weights: Weights, of: Statistic = "features") -> ClassStatistics:
        raise NotImplementedError("a quadratic has no classes")

    def losses(self, models: Sequence[Weights], on: Dataset = "train") -> list[float]:
        objective = Quadratic(self.a, self.b)
        return [float(objective.loss(torch.tensor(each.parameters), torch.zeros(1))) for each in models]

    def held_out(
        self, share: float, rng: np.random.Generator | None = None
    ) -> tuple["QuadraticTask", Callable[[Weights], float]]:
        """All samples are alike: nothing is lost, and the held-out loss is the function itself."""

        def loss(weights: Weights) -> float:
            return float(Quadratic(self.a, self.b).loss(torch.tensor(weights.parameters), torch.zeros(1)))

        return self, loss

    def peak_memory(self) -> dict[str, float]:
        return {}

    def _trainer(self, start: Weights, rng: np.random.Generator, train: Part | None) -> Trainer:
        samples = Samples(np.zeros((self.examples, 1), np.float32), np.zeros(self.examples), torch.device("cpu"))
        return Trainer(Point(start), samples, Quadratic(self.a, self.b), self.config, self.lr, rng, train)


def sizes(count: int) -> list[int]:
    """Training samples of the clients of a federation, all different: 1, 4, 7, 3, 6, 2, 5."""
    return [1 + 3 * client % 7 for client in range(count)]


class Federation:
    """An algorithm on quadratics, driven by hand: everyone, or those who are named, in each round."""

    def __init__(
        self,
        name: str,
        a: Numbers,
        b: Numbers,
        *,
        local_steps: int,
        lr: float,
        momentum: float = 0.0,
        draws: Sequence[Weights] = (),
        **params: Any,
    ):
        algorithm, made = registry.find("algorithm", name), params_of(name, **params)
        self.config = RunConfig(clients=len(a), local_steps=local_steps, lr=lr, momentum=momentum)
        clients = [Client(i, i, size, 1, (size,)) for i, size in enumerate(sizes(len(a)))]
        self.tasks = [
            QuadraticTask(np.asarray(x), np.asarray(y), self.config, client.train)
            for x, y, client in zip(a, b, clients, strict=True)
        ]
        fleet = Fleet(clients, self.tasks[0].layout, self.tasks[0].initial(), draws=draws)
        self.server = algorithm.server(made, self.config)
        self.server.attach(fleet)
        self.client, self.tuning = registry.load(algorithm.client)(made), algorithm.finetune(made)
        self.states = [ClientState() for _ in a]
        self.state = self.server.init(fleet.initial, fleet)
        self.step = 0

    def round(self, *who: int) -> Any:
        """One synchronous round; returns the server's state after it."""
        arrivals = [Arrival(i, self.step, self.train(i), 0.0, 1.0) for i in who or range(len(self.tasks))]
        self.state = self.server.update(self.state, arrivals)
        self.step += 1
        return self.state

    def train(self, client: int) -> Uplink:
        down = self.server.instruct(self.state, client, train=True)
        uplink: Uplink = self.client.train(self.tasks[client], down, self.states[client], np.random.default_rng(0))
        return uplink

    def personal(self, client: int) -> Numbers:
        """The parameters of the model that this client would use now."""
        down = self.server.instruct(self.state, client, train=False)
        task, state = self.tasks[client], self.states[client]
        found = personal_model(self.client, self.tuning, task, down, state, np.random.default_rng(0))
        return (found.weights if isinstance(found, PersonalModel) else found).parameters
