"""How alike, layer by layer, the models are that clients train on their own data from one start: linear CKA.

Every client trains the run's initial model for the run's local epochs (or steps). All models then see the same inputs,
and CKA compares what two of them make of these inputs after each convolution and each matrix.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.clients.task import TorchTask
from fedsim.clients.training import load
from fedsim.config import RunConfig
from fedsim.partitions.client_data import ClientDataSource, load_dataset
from fedsim.partitions.measures import Matrix, representation_cka
from fedsim.partitions.split import Array
from fedsim.rng import stream

INPUTS = 256  # test samples that all models see


def layer_similarity(config: RunConfig) -> dict[str, Matrix]:
    """Name of a layer -> clients x clients, in the order of the layers."""
    dataset, source = load_dataset(config), ClientDataSource(config)
    tests = len(dataset.labels.train) + np.arange(len(dataset.labels.test))
    inputs = dataset.samples(tests[:: -(-len(tests) // INPUTS)], config.inputs == "normalized")
    found: dict[str, list[Array]] = {}
    for client in range(config.clients):
        task = TorchTask(config, source.client(client), dataset.classes, client)
        module = task.network("model").module
        load(module, task.fit(task.initial(), stream(config.seed, client, "layers")).weights)
        for name, values in _representations(module.eval(), torch.from_numpy(inputs).to(task.device)).items():
            found.setdefault(name, []).append(values)
    return {name: representation_cka(values) for name, values in found.items()}


def _representations(module: nn.Module, inputs: Tensor) -> dict[str, Array]:
    """What every convolution and every matrix puts out, N x values."""
    found: dict[str, Array] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(layer: nn.Module, received: Any, output: Tensor) -> None:
            found[name] = output.flatten(1).cpu().numpy()

        return hook

    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(keep(name)) for name, layer in layers]
    with torch.inference_mode():
        module(inputs)
    for hook in hooks:
        hook.remove()
    return found
