"""What message passing costs a server: distances or cosines of all pairs and mixing, N=100 models of a million parameters.

The reference is the bare product of the N x N weights with the N x d models; for memory it is the models themselves.
Seconds are those of the processor, over all threads: what else a machine has to do does not count.
"""

import time
import tracemalloc
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.row import Row
from fedsim import registry
from fedsim.config import RunConfig
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Uplink
from fedsim.vector import Layout, Tensor

NAME = "attention"
CLIENTS, SIZE, TURNS = 100, 1_000_000, 5
TIMES, COPIES = 3.0, 2.2


def run() -> list[Row]:
    rows = [
        Row.of(f"{name} step, 100 x 1e6, vs bare GEMM", _turns(name), "s", TIMES) for name in ("fedamp", "heurfedamp")
    ]
    models = CLIENTS * SIZE * 4e-6
    return [*rows, Row("fedamp state and step, 100 x 1e6, vs the models", _megabytes(), models, "MB", COPIES)]


def _turns(name: str) -> list[tuple[float, float]]:
    strategy, state, arrival = _server(name)
    spare = np.zeros_like(state.models)
    weights = np.full((CLIENTS, CLIENTS), 0.01, np.float32)
    with threadpool_limits(1, "blas"):  # BLAS's threads spin while they wait for each other
        return [
            (
                _seconds(lambda: strategy.update(state, [arrival])),
                _seconds(lambda: np.matmul(weights, state.models, out=spare)),
            )
            for _ in range(TURNS)
        ]


def _server(name: str) -> tuple[Any, Any, Arrival]:
    """A server that has heard of everyone, and one more result."""
    algorithm = registry.find("algorithm", name)
    theta = np.random.default_rng(0).standard_normal(SIZE, np.float32)
    clients = [Client(i, i, 1, 1, (1,)) for i in range(CLIENTS)]
    fleet = Fleet(clients, Layout((Tensor("w", (SIZE,), "head"),)), theta, np.empty(0, np.float32))
    strategy = algorithm.server(algorithm.params(), RunConfig(clients=CLIENTS))
    strategy.enlist(fleet)
    state = strategy.init(theta, fleet)
    state.models *= np.linspace(0.9, 1.1, CLIENTS, dtype=np.float32)[:, None]
    state.heard[:] = True
    return strategy, state, Arrival(0, 0, Uplink({"model": theta}, 1), 0.0, 1.0)


def _seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _megabytes() -> float:
    """The most memory in use at once, from the beginning to the end of a step."""
    tracemalloc.start()
    strategy, state, arrival = _server("fedamp")
    strategy.update(state, [arrival])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6
