"""Client half of FedGC: trains the base and the head rows of its own classes, and exchanges nothing else."""

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.clients.heads import IMPOSSIBLE, head_bias, head_matrix, with_linear_head
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedGCClient(ClientBehaviour[object]):
    """Receives the `shared` base and the `rows` of its own classes, and sends updates of both. Equation numbers are those of
    `fedsim.strategies.fedgc`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        start, head = self.personalize(task, down, state, rng), task.layout.part("head")
        fit = task.fit(start, rng, train=~head_bias(task.layout))  # (1)
        rows = head_matrix(task.layout, fit.weights.parameters - start.parameters)[task.labels > 0]
        delta = fit.weights.only(~head).delta(down.weights["shared"])
        return Uplink(task.examples, {"delta": delta}, {"rows": rows}, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        """The received base with the client's rows; a bias that no product can reach excludes other classes."""
        rows = np.zeros((len(task.labels), task.layout.features), np.float32)
        rows[task.labels > 0] = down.arrays["rows"]
        bias = np.where(task.labels > 0, 0, IMPOSSIBLE)
        model = task.initial().with_part(~task.layout.part("head"), down.weights["shared"])
        return with_linear_head(task.layout, model, rows, bias)
