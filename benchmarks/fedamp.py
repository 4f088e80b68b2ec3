"""A server step of FedAMP and HeurFedAMP: distances or cosines of all pairs, and mixing, of N=100 models with a million
parameters each.

The reference for time is the product of the N x N weights with the N x d models, for memory the models themselves. Time
is processor time over all threads, which does not depend on other processes of the machine.
"""

import time
import tracemalloc
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.comparison import Comparison, Row
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.payload import Arrival, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.weights import Weights

CLIENTS, SIZE, TURNS = 100, 1_000_000, 5
TIME_LIMIT, MEMORY_LIMIT = 3.0, 2.2


def run() -> list[Row]:
    names = ("fedamp", "heurfedamp")
    rows = [Comparison.of(f"{name} step, 100 x 1e6, vs one GEMM", _measure(name), "s", TIME_LIMIT) for name in names]
    models = CLIENTS * SIZE * 4e-6
    return [
        *rows,
        Comparison("fedamp state and step, 100 x 1e6, vs the models", _megabytes(), models, "MB", MEMORY_LIMIT),
    ]


def _measure(name: str) -> list[tuple[float, float]]:
    strategy, state, arrival = _server(name)
    spare = np.zeros_like(state.models)
    weights = np.full((CLIENTS, CLIENTS), 0.01, np.float32)
    with threadpool_limits(1, "blas"):  # threads of BLAS use processor time while they wait for each other
        return [
            (
                seconds(lambda: strategy.update(state, [arrival])),
                seconds(lambda: np.matmul(weights, state.models, out=spare)),
            )
            for _ in range(TURNS)
        ]


def _server(name: str) -> tuple[Any, Any, Arrival]:
    """A server that has received a model of every client, and one more arrival."""
    algorithm = registry.find("algorithm", name)
    theta = np.random.default_rng(0).standard_normal(SIZE, np.float32)
    model = Weights(theta)
    clients = [Client(i, i, 1, 1, (1,)) for i in range(CLIENTS)]
    fleet = Fleet(clients, Layout((Tensor("w", (SIZE,), "head"),)), model)
    strategy = algorithm.server(algorithm.params(), RunConfig(clients=CLIENTS))
    strategy.attach(fleet)
    state = strategy.init(model, fleet)
    state.models *= np.linspace(0.9, 1.1, CLIENTS, dtype=np.float32)[:, None]
    state.received[:] = True
    return strategy, state, Arrival(0, 0, Uplink(1, {"model": model}), 0.0, 1.0)


def seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _megabytes() -> float:
    """Peak memory of the state and one step."""
    tracemalloc.start()
    strategy, state, arrival = _server("fedamp")
    strategy.update(state, [arrival])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6
