"""Client half of FedDyn: local SGD with a linear and a proximal term that follow the client's past drifts."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from fedsim.algorithm import Fit, Task
from fedsim.clients.fedprox import proximal
from fedsim.clients.local_sgd import LocalSGD
from fedsim.clients.training import GradientHook
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Vec, Weights


class FedDynClient(LocalSGD):
    """Expects parameters with `alpha` and `clip`. Equation numbers are those of `fedsim.strategies.feddyn`."""

    def gradient_hook(self, task: Task, down: Downlink, state: ClientState) -> GradientHook:
        alpha, clip = self.params.alpha, self.params.clip
        # -g + alpha * (th - received) is a pull towards received + g / alpha
        anchor = down.model.parameters + self._gradient(state, down.model) / np.float32(alpha)
        pull = proximal(task.layout, Weights(anchor), alpha)
        assert pull is not None  # alpha is above 0

        def regularize(parameters: Sequence[Tensor]) -> None:
            if clip:
                clip_grad_norm_(parameters, clip)
            pull(parameters)  # (1)

        return regularize

    def uplink(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator, fit: Fit) -> Uplink:
        sent = super().uplink(task, down, state, rng, fit)
        moved = sent.weights["delta"].parameters
        state.arrays["gradient"] = self._gradient(state, down.model) - np.float32(self.params.alpha) * moved  # (2)
        return sent

    def _gradient(self, state: ClientState, like: Weights) -> Vec:
        return state.arrays["gradient"] if "gradient" in state.arrays else np.zeros_like(like.parameters)
