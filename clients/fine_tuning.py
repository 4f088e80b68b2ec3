"""Client halves of the fine-tuned algorithms: they train plainly, but the model they use themselves is a tuned copy."""

import numpy as np

from clients.local_sgd import LocalSGD
from clients.proximal import Proximal
from fedsim.algorithm import Task
from fedsim.payload import Downlink, Memory, Model


class FineTuned(LocalSGD):
    """Expects parameters with `epochs` (0: as long as local training)."""

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        epochs = self.params.epochs or None
        return task.fit(down.vectors["model"], rng, buffers=down.vectors.get("buffers"), epochs=epochs).whole


class Updated(LocalSGD):
    """Expects parameters with `steps`: mini-batches the copy is trained on."""

    def personalise(self, task: Task, down: Downlink, memory: Memory, rng: np.random.Generator) -> Model:
        return task.fit(down.vectors["model"], rng, buffers=down.vectors.get("buffers"), steps=self.params.steps).whole


class FineTunedProximal(FineTuned, Proximal):
    """Trains with a proximal term; the copy it uses itself is fine-tuned without."""
