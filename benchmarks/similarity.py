"""What SPFL's server step costs: similarities of 100 clients and mixing of their models of a million parameters, in two
stages, beside the bare matrix products in float32, and its memory beside the models themselves.
"""

import time
import tracemalloc

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.row import Row
from fedsim.config import RunConfig
from fedsim.fleet import Client, Fleet
from fedsim.payload import Arrival, Uplink
from fedsim.vector import Layout, Tensor
from strategies.spfl import SPFL, Spfl, State

NAME = "similarity"
CLIENTS, BASE, HEAD, TURNS = 100, 900_000, 100_000, 5
TIME_LIMIT, MEMORY_LIMIT = 3.0, 2.2


def run() -> list[Row]:
    layout = Layout((Tensor("base.w", (BASE, 1), "base"), Tensor("head.w", (HEAD, 1), "head")))
    strategy = Spfl(SPFL.params(probe="cheap"), RunConfig(clients=CLIENTS))
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(layout.size, dtype=np.float32)
    strategy.enlist(Fleet([Client(i, i, 10, 1, (1,)) for i in range(CLIENTS)], layout, theta, theta[:0]))
    deltas = [rng.standard_normal(layout.size, dtype=np.float32) for _ in range(CLIENTS)]
    state = strategy.init(theta, strategy.fleet)
    with threadpool_limits(1):  # on a busy machine, threads that wait for each other would be measured instead
        seconds = [(_ours(strategy, state, deltas), _bare(state.models, deltas)) for _ in range(TURNS)]
    whole = state.models.nbytes
    tracemalloc.start()
    _ours(strategy, state, deltas)
    peak = tracemalloc.get_traced_memory()[1] + 2 * whole  # with what was there before: models and updates
    tracemalloc.stop()
    what = f"{CLIENTS} clients, d = {layout.size:,}"
    return [
        Row.of(f"SPFL server step, {what}, vs bare products", seconds, "s", TIME_LIMIT),
        Row(f"SPFL peak memory, {what}, vs the models", peak / 2**20, whole / 2**20, "MiB", MEMORY_LIMIT),
    ]


def _ours(strategy: Spfl, state: State, deltas: list[np.ndarray]) -> float:
    """A round with reset and refresh."""
    state.step = 0
    arrivals = [Arrival(i, 0, Uplink({"delta": delta}, 10), 0.0, 1.0) for i, delta in enumerate(deltas)]
    start = time.perf_counter()
    strategy.update(state, arrivals)
    return time.perf_counter() - start


def _bare(models: np.ndarray, deltas: list[np.ndarray]) -> float:
    """Per stage one product for the similarities and one for the mixing, on matrices that are there already."""
    matrix, weights = np.stack(deltas), np.full((len(deltas), len(deltas)), 0.01, np.float32)
    start = time.perf_counter()
    for part in (slice(0, BASE), slice(BASE, BASE + HEAD)):
        matrix[:, part] @ matrix[:, part].T
        models[:, part] += weights @ matrix[:, part]
    return time.perf_counter() - start
