"""Client half of FedFomo: combines the received models by what they improve on held-out samples, then trains."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import numpy as np

from fedsim.algorithm import ClientBehaviour, Task
from fedsim.payload import ClientState, Downlink, Uplink
from fedsim.weights import Weights, weighted_mean


class FedFomoClient(ClientBehaviour[Any]):
    """Expects parameters with `validation`. Receives models as `peer-ROW`, sends its own and the `gains` of those. Equation
    numbers are those of `fedsim.strategies.fedfomo`."""

    def train(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Uplink:
        rest, loss = task.held_out(max(self.params.validation, 1 / task.examples))
        before, row = self.personalize(task, down, state, rng), int(down.numbers["row"])
        models = {int(name.removeprefix("peer-")): weights for name, weights in down.weights.items()}
        if "trained" in state.weights:
            models[row] = state.weights["trained"]
        gains = improvements(before, models, loss)
        start = combined(before, models, gains)
        fit = rest.fit(start, rng)  # (3)
        task.batches_read = rest.batches_read
        state.weights |= {"start": start, "trained": fit.weights}
        sent = np.zeros(task.config.clients - len(task.config.unseen), np.float32)
        sent[list(gains)] = list(gains.values())
        metrics = {"loss": fit.loss}
        return Uplink(rest.examples, {"model": fit.weights}, {"gains": sent}, metrics=metrics, local=fit.weights)

    def personalize(self, task: Task, down: Downlink, state: ClientState, rng: np.random.Generator) -> Weights:
        return state.weights["start"] if "start" in state.weights else task.initial()


def improvements(before: Weights, models: Mapping[int, Weights], loss: Callable[[Weights], float]) -> dict[int, float]:
    """(1); 0 for a model at no distance, or with a loss that is not finite."""
    gains, reference = {}, loss(before) if models else 0.0
    for key, model in models.items():
        gap = model.parameters.astype(np.float64) - before.parameters
        distance = float(np.sqrt(np.square(gap).sum()))  # not BLAS, whose bits depend on its threads
        gain = (reference - loss(model)) / distance if distance else 0.0
        gains[key] = gain if isfinite(gain) else 0.0
    return gains


def combined(before: Weights, models: Mapping[int, Weights], gains: Mapping[int, float]) -> Weights:
    """(2)."""
    helpful = [key for key, gain in gains.items() if gain > 0]
    if not helpful:
        return before
    shares = [gains[key] for key in helpful]
    parameters, buffers = (
        weighted_mean([getattr(models[key], part) for key in helpful], shares) for part in ("parameters", "buffers")
    )
    return Weights(parameters, buffers)
