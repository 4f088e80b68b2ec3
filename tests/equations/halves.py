"""Server halves with made-up clients and the arrivals they get, and both halves with the clients of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim import config as configs
from fedsim import registry
from fedsim.clients.task import TorchTask
from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.partitions.client_data import client_data
from fedsim.payload import Arrival, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights

LAYOUT = Layout((Tensor("base.w", (2, 1), "base"), Tensor("base.b", (1,), "base"), Tensor("head.w", (2, 1), "head")))
SMALL = Layout((Tensor("base.w", (2,), "base"), Tensor("head.w", (1,), "head")))


def vec(*values: float) -> Any:
    return np.array(values, np.float32)


def params_of(name: str, **params: object) -> Any:
    """An algorithm's parameters, validated as those of a run are."""
    made = registry.find("algorithm", name).params(**params)
    configs.check(made, name)
    return made


def server(name: str, sizes: Sequence[int], layout: Layout = LAYOUT, **params: object) -> Any:
    """An algorithm's server half, attached to clients with so many training samples."""
    clients = [Client(i, i, size, 1, (1,)) for i, size in enumerate(sizes)]
    config = RunConfig(clients=len(sizes), lr=0.01)
    strategy = registry.find("algorithm", name).server(params_of(name, **params), config)
    initial = Weights(np.zeros(layout.size, np.float32), np.zeros(layout.buffer_size, np.float32))
    strategy.attach(Fleet(clients, layout, initial))
    return strategy


def started(strategy: Any, *values: float, buffers: Sequence[float] = ()) -> Any:
    """The state of a server half before the first step, with this initial model."""
    return strategy.init(Weights(vec(*values), vec(*buffers)), strategy.fleet)


def arrival(client: int, size: int, step: int = 0, staleness: int = 0, buffers: Any = None, **vectors: Any) -> Arrival:
    """The result of a client: weights by name, of which `delta` has the buffers."""
    weights = {name: Weights(values) for name, values in vectors.items()}
    if buffers is not None:
        weights["delta"] = Weights(vectors["delta"], buffers)
    return Arrival(client, step, Uplink(size, weights), 0.0, 1.0, staleness)


def halves(config: RunConfig) -> tuple[Any, Any, list[TorchTask]]:
    """The server half with its fleet, the client half, and the clients' tasks."""
    algorithm = registry.find("algorithm", config.algorithm)
    params = config.params(config.algorithm)
    tasks = [TorchTask(config, client_data(config, c), 10) for c in range(config.clients)]
    server = algorithm.server(params, config)
    clients = [Client(c, c, task.examples, 1, (1,)) for c, task in enumerate(tasks)]
    server.attach(Fleet(clients, tasks[0].layout, tasks[0].initial()))
    return server, registry.load(algorithm.client)(params), tasks
