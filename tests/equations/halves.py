"""Server halves with made-up clients, and the arrivals they get."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim import registry
from fedsim.config import RunConfig
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Uplink
from fedsim.vector import Layout, Tensor

LAYOUT = Layout((Tensor("base.w", (2, 1), "base"), Tensor("base.b", (1,), "base"), Tensor("head.w", (2, 1), "head")))


def vec(*values: float) -> Any:
    return np.array(values, np.float32)


def server(name: str, sizes: Sequence[int], layout: Layout = LAYOUT, buffers: Any = None, **params: object) -> Any:
    """An algorithm's server half, enlisted with clients of these sizes."""
    algorithm = registry.find("algorithm", name)
    clients = [Client(i, i, size, 1, (1,)) for i, size in enumerate(sizes)]
    strategy = algorithm.server(algorithm.params(**params), RunConfig(clients=len(sizes), lr=0.01))
    start = vec() if buffers is None else buffers
    strategy.enlist(Fleet(clients, layout, np.zeros(layout.size, np.float32), start))
    return strategy


def arrival(client: int, size: int, step: int = 0, staleness: int = 0, **vectors: Any) -> Arrival:
    return Arrival(client, step, Uplink(vectors, size), 0.0, 1.0, staleness)
