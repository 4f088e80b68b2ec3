"""Client half of FedPAC: statistics of its features, then its head, then the base with features drawn to global means."""

import numpy as np

from fedsim.algorithm import ClassStatistics, Task
from fedsim.clients.batch_steps import at_rate
from fedsim.clients.fedproto import FedProtoClient
from fedsim.payload import Array, ClientState, Downlink, Uplink
from fedsim.weights import Weights


class FedPacClient(FedProtoClient):
    """Expects parameters with `lam`, `head_epochs`, `head_lr`. Receives the `shared` base, its `head` and global prototypes;
    sends both parts, its prototypes, `h` and `v`. Equation numbers are those of `fedsim.strategies.fedpac`; the loss of the
    base is FedProto's."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        start, head = self.personalize(task, down, state, rng), task.layout.part("head")
        h, v = data_moments(task.by_class(start))  # (1)
        rate = at_rate(self.params.head_lr)
        tuned = task.fit(start, rng, train=head, epochs=self.params.head_epochs, step=rate)
        fit = task.fit(tuned.weights, rng, train=~head, loss=self.loss(task, down))  # (2)
        weights = {"delta": fit.weights.only(~head).delta(down.weights["shared"]), "head": fit.weights.only(head)}
        arrays = {"prototypes": task.by_class(fit.weights).means, "h": h, "v": v}
        return Uplink(task.examples, weights, arrays, metrics={"loss": fit.loss}, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        head = task.layout.part("head")
        return task.initial().with_part(~head, down.weights["shared"]).with_part(head, down.weights["head"])


def data_moments(found: ClassStatistics) -> tuple[Array, Array]:
    """h (classes x features) and v (one value) of (1)."""
    count = found.counts.sum()
    shares = found.counts / count
    h = shares[:, None] * found.means.astype(np.float64)
    v = (shares @ found.squares.astype(np.float64) - np.square(h).sum()) / count
    return h.astype(np.float32), np.array([v], np.float32)
