"""Networks that do not change during a job."""

import numpy as np
import torch
from torch import Tensor

from fedsim.algorithm import Task
from fedsim.clients.training import Trainer, part_of
from fedsim.weights import Weights


class FrozenFeatures:
    """The features of the training samples under fixed weights, in evaluation mode: computed once per job and sample,
    when the sample is first met."""

    def __init__(self, task: Task, weights: Weights) -> None:
        self._network = task.companion(weights).network.eval()
        self._known = np.zeros(task.examples, bool)
        self._features: Tensor | None = None

    def of(self, trainer: Trainer, x: Tensor) -> Tensor:
        """The features of the trainer's present mini-batch, which has the inputs x."""
        places = torch.from_numpy(trainer.chosen).to(x.device)
        if self._features is not None and self._known[trainer.chosen].all():
            return self._features[places]
        with torch.no_grad():
            found: Tensor = part_of(self._network, "base")(x).flatten(1)
        if self._features is None:
            self._features = found.new_empty((len(self._known), found.shape[1]))
        self._features[places], self._known[trainer.chosen] = found, True
        return found
