"""What SPFL's server step costs: similarities of 100 clients and mixing of their models of a million parameters, in two
stages, beside the bare matrix products in float32, and its memory beside the models themselves.
"""

import time
import tracemalloc

import numpy as np

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
    rng = np.random.default_rng(0)
    deltas = [rng.standard_normal(BASE + HEAD, dtype=np.float32) for _ in range(CLIENTS)]
    strategy, state = _server("cheap", deltas[0])
    seconds = [(_ours(strategy, state, deltas), _bare(state.models, deltas)) for _ in range(TURNS)]
    what = f"{CLIENTS} clients, d = {BASE + HEAD:,}"
    return [
        Row.of(f"SPFL server step, {what}, vs bare products", seconds, "s", TIME_LIMIT),
        _memory(f"SPFL peak memory, {what}, vs the models", "cheap", deltas, MEMORY_LIMIT),
        _memory("the same with probes of their own, which are there too", "faithful", deltas),
    ]


def _server(probe: str, theta: np.ndarray) -> tuple[Spfl, State]:
    layout = Layout((Tensor("base.w", (BASE, 1), "base"), Tensor("head.w", (HEAD, 1), "head")))
    strategy = Spfl(SPFL.params(probe=probe), RunConfig(clients=CLIENTS))
    strategy.enlist(Fleet([Client(i, i, 10, 1, (1,)) for i in range(CLIENTS)], layout, theta, theta[:0]))
    return strategy, strategy.init(theta, strategy.fleet)


def _memory(name: str, probe: str, deltas: list[np.ndarray], limit: float | None = None) -> Row:
    """The most that is there at once in a round with reset and refresh, results and models included."""
    tracemalloc.start()
    strategy, state = _server(probe, deltas[0])
    _ours(strategy, state, [delta.copy() for delta in deltas])
    peak, whole = tracemalloc.get_traced_memory()[1], state.models.nbytes
    tracemalloc.stop()
    return Row(name, peak / 2**20, whole / 2**20, "MiB", limit)


def _ours(strategy: Spfl, state: State, deltas: list[np.ndarray]) -> float:
    """A round with reset and refresh."""
    state.step, apart = 0, strategy.params.probe == "faithful"
    vectors = [{"delta": delta} | ({"probe": delta.copy()} if apart else {}) for delta in deltas]
    arrivals = [Arrival(i, 0, Uplink(own, 10), 0.0, 1.0) for i, own in enumerate(vectors)]
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
