"""A server step of SPFL: similarities of 100 clients and mixing of their million parameters, in two stages.

The reference for time are the matrix products alone in float32, for memory the models themselves.
"""

import time
import tracemalloc
from typing import Literal

import numpy as np

from benchmarks.comparison import Comparison, Row
from fedsim.config import RunConfig
from fedsim.layout import Layout, Tensor
from fedsim.payload import Arrival, Uplink
from fedsim.server.fleet import Client, Fleet
from fedsim.strategies.spfl import SPFL, Spfl, State
from fedsim.weights import Weights

Probe = Literal["faithful", "cheap"]
CLIENTS, BASE, HEAD, TURNS = 100, 900_000, 100_000, 5
TIME_LIMIT, MEMORY_LIMIT = 3.0, 2.2


def run() -> list[Row]:
    rng = np.random.default_rng(0)
    deltas = [rng.standard_normal(BASE + HEAD, dtype=np.float32) for _ in range(CLIENTS)]
    strategy, state = _server("cheap", deltas[0])
    seconds = [(_ours(strategy, state, deltas), _products(state.models, deltas)) for _ in range(TURNS)]
    what = f"{CLIENTS} clients, d = {BASE + HEAD:,}"
    return [
        Comparison.of(f"SPFL server step, {what}, vs matrix products", seconds, "s", TIME_LIMIT),
        _memory(f"SPFL peak memory, {what}, vs the models", "cheap", deltas, MEMORY_LIMIT),
        _memory("the same with probe=faithful, whose probes are kept as well", "faithful", deltas),
    ]


def _server(probe: Probe, theta: np.ndarray) -> tuple[Spfl, State]:
    layout = Layout((Tensor("base.w", (BASE, 1), "base"), Tensor("head.w", (HEAD, 1), "head")))
    strategy = Spfl(SPFL.params(probe=probe), RunConfig(clients=CLIENTS))
    strategy.attach(Fleet([Client(i, i, 10, 1, (1,)) for i in range(CLIENTS)], layout, Weights(theta)))
    return strategy, strategy.init(Weights(theta), strategy.fleet)


def _memory(name: str, probe: Probe, deltas: list[np.ndarray], limit: float | None = None) -> Comparison:
    """Peak memory of a round with reset and refresh, including arrivals and models."""
    tracemalloc.start()
    strategy, state = _server(probe, deltas[0])
    _ours(strategy, state, [delta.copy() for delta in deltas])
    peak, whole = tracemalloc.get_traced_memory()[1], state.models.nbytes
    tracemalloc.stop()
    return Comparison(name, peak / 2**20, whole / 2**20, "MiB", limit)


def _ours(strategy: Spfl, state: State, deltas: list[np.ndarray]) -> float:
    """Seconds of a round with reset and refresh."""
    state.step, apart = 0, strategy.params.probe == "faithful"
    sent = [{"delta": Weights(d)} | ({"probe": Weights(d.copy())} if apart else {}) for d in deltas]
    arrivals = [Arrival(i, 0, Uplink(10, own), 0.0, 1.0) for i, own in enumerate(sent)]
    start = time.perf_counter()
    strategy.update(state, arrivals)
    return time.perf_counter() - start


def _products(models: np.ndarray, deltas: list[np.ndarray]) -> float:
    """Seconds of one product for the similarities and one for the mixing, per stage."""
    matrix, weights = np.stack(deltas), np.full((len(deltas), len(deltas)), 0.01, np.float32)
    start = time.perf_counter()
    for part in (slice(0, BASE), slice(BASE, BASE + HEAD)):
        matrix[:, part] @ matrix[:, part].T
        models[:, part] += weights @ matrix[:, part]
    return time.perf_counter() - start
