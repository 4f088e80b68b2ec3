"""Client half of FedNova: local SGD, or with a proximal term, that also tells how many steps are behind its update."""

from dataclasses import replace

import numpy as np

from fedsim.algorithm import Fit, Task
from fedsim.clients.fedprox import Proximal
from fedsim.clients.optimizers import step_weights
from fedsim.payload import ClientState, Downlink, Uplink


class FedNovaClient(Proximal):
    """Equation numbers are those of `fedsim.strategies.fednova`."""

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        pull = task.lr * float(down.numbers["proximal"])
        steps = step_weights(fit.steps, task.config.momentum, pull)  # (2)
        return replace(super().uplink(task, down, state, rng, fit), arrays={"steps": np.array([steps], np.float32)})
