"""What a server does with the public data: it measures models that it received, and trains on the data itself."""

import numpy as np
import torch

from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig, lr_at
from fedsim.errors import ConfigError
from fedsim.partitions.client_data import ClientData
from fedsim.partitions.public import public_data
from fedsim.payload import Metrics
from fedsim.rng import stream
from fedsim.weights import Weights


class PublicTask:
    """See `public_test` and `public_update` of `fedsim.algorithm.ServerStrategy`."""

    def __init__(self, config: RunConfig, classes: int) -> None:
        data = public_data(config)
        if data is None:
            raise ConfigError("there is no public data to test on: set public=N")
        own = ClientData(data.x, data.y, data.x, data.y, classes, data.dataset.objective, data, data.dataset.vocabulary)
        self._task = TorchTask(config.with_model(config.models[0]), own, classes)
        self._targets = torch.from_numpy(data.y)

    def test(self, weights: Weights) -> Metrics:
        output = torch.from_numpy(self._task.outputs(weights, on="public"))
        sums, count = self._task.objective.measure(output, self._targets)
        probabilities = output.double().softmax(-1).numpy()
        entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=-1).mean()
        return {**{name: value / count for name, value in sums.items()}, "entropy": float(entropy)}

    def update(self, start: Weights, step: int) -> Weights:
        task = self._task
        task.lr, task.batches_read = lr_at(task.config, step), 0
        trained = task.fit(start, stream(task.config.seed, "public-training", step)).weights
        return Weights(trained.parameters - start.parameters, trained.buffers - start.buffers)
